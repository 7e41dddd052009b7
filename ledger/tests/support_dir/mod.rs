//! A directory that goes with its test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// An empty directory; removed with all in it when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number of its own is all that is needed.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("folio-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the system has room for a test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What cannot be removed is not the test's concern.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
