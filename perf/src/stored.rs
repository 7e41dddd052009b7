//! A store in files for the length of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use folio_ledger::store::layer::RealDirectory;
use folio_ledger::store::{Done, Durability, FileOptions, FileStore, StoredLedger};

use crate::run::RunError;
use crate::settings::{Settings, Storage};

/// A folder of a run's own, removed with all that is in it when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    fn make(inside: &Path) -> std::io::Result<Self> {
        /// So that runs of one process do not meet.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = inside.join(format!("folio-perf-{}-{number}", std::process::id()));
        std::fs::create_dir_all(inside)?;
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans up such folders.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// The ledger of a run, in a store that nobody else has.
type Ledger = StoredLedger<Arc<FileStore>>;

/// Makes a store with the ledger of a run in it, if the run is to have files.
pub(crate) fn open(settings: &Settings) -> Result<Option<(Ledger, Folder)>, RunError> {
    let durability = match settings.storage {
        Storage::Memory => return Ok(None),
        Storage::Written => Durability::Written,
        Storage::Synced => Durability::Synced,
    };
    let inside = settings.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder::make(&inside).map_err(|error| {
        RunError::Storage(format!("no folder could be made in {}: {error}", inside.display()))
    })?;
    let options = FileOptions { durability, ..FileOptions::default() };
    let (store, _) = FileStore::open(RealDirectory::new(&folder.0), options)
        .map_err(|error| RunError::Storage(error.to_string()))?;
    let (tell, told) = mpsc::channel();
    StoredLedger::create(
        &Arc::new(store),
        "perf",
        0,
        1,
        Done::new(move |made| {
            // Who asked waits for it.
            let _told = tell.send(made);
        }),
    );
    match told.recv() {
        Ok(Ok(ledger)) => Ok(Some((ledger, folder))),
        Ok(Err(error)) => Err(RunError::Storage(error.to_string())),
        Err(_) => Err(RunError::Storage("the store did not answer".to_owned())),
    }
}
