//! The floor of a durable write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::runner::{Case, Effort, Mark, Metric, Sample, sample_between};

const BLOCK: [u8; 4096] = [7; 4096];

/// Blocks of the file, which is written full before the first trial.
const BLOCKS: u64 = 256;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut file = None;
    let sync = Case::new("fdatasync of 4 KiB, pre-allocated", move |effort| {
        if file.is_none() {
            file = Some(Scratch::create().expect("a scratch file can be made beside the executable"));
        }
        let scratch = file.as_ref().expect("made above");
        trial(&scratch.file, effort).expect("the scratch file can be written and synced")
    });
    vec![sync.documented(Metric::Wall, 200_000.0)]
}

fn trial(file: &File, effort: Effort) -> io::Result<Sample> {
    let writes = effort.pick(100, 2);
    let start = Mark::now();
    for write in 0..writes {
        file.write_all_at(&BLOCK, (write % BLOCKS) * 4096)?;
        file.sync_data()?;
    }
    Ok(sample_between(start, Mark::now(), writes))
}

/// A file beside the executable, which is on a real disk where the folder for temporary files may be memory.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn create() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_extension(format!("scratch-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let scratch = Self { file, path };
        for block in 0..BLOCKS {
            scratch.file.write_all_at(&BLOCK, block * 4096)?;
        }
        scratch.file.sync_all()?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that is gone already needs no removing.
        let _ = fs::remove_file(&self.path);
    }
}
