//! The files of a store: what it needs of a directory, and the real one.

#[cfg(feature = "test-util")]
mod sim;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(feature = "test-util")]
pub use sim::{Crash, Op, SimDirectory};

/// A directory without directories in it.
pub trait Directory: Send + Sync + 'static {
    /// A file of it.
    type File: StoreFile;
    /// Keeps others out while it lives.
    type Lock: Send + Sync + 'static;

    /// Opens a file.
    ///
    /// # Errors
    /// When it is not there, or the system says so.
    fn open(&self, name: &str, mode: Mode) -> io::Result<Self::File>;

    /// The names of all files.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file; it may be back after a crash until the directory is synced.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when the names of all files are on disk.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;

    /// Locks the directory by a file that is made if need be: for oneself, or with others who share it.
    ///
    /// # Errors
    /// `WouldBlock` when it is locked otherwise.
    fn lock(&self, name: &str, how: Hold) -> io::Result<Self::Lock>;
}

/// A file of a store.
pub trait StoreFile: Send + Sync + 'static {
    /// Writes all of this at an offset.
    ///
    /// # Errors
    /// The system's; some of it may be written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; otherwise the system's.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns when what was written to it is on disk, with its length.
    ///
    /// # Errors
    /// The system's; it is not known then what is on disk, and asking again tells nothing.
    fn sync(&self) -> io::Result<()>;

    /// Makes the file this long, all of it zeros that are written: later writes change no more than what they write.
    ///
    /// # Errors
    /// The system's, `StorageFull` among them.
    fn preallocate(&self, bytes: u64) -> io::Result<()>;

    /// How long it is.
    ///
    /// # Errors
    /// The system's.
    fn size(&self) -> io::Result<u64>;
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To be read.
    Read,
    /// To be read and written.
    Write,
    /// To be read and written; it is made empty, whether it was there or not.
    Create,
}

/// With whom a directory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// With nobody.
    Alone,
    /// With others who only read. Makes no file.
    Shared,
}

/// A directory of the system.
#[derive(Clone, Debug)]
pub struct RealDirectory(PathBuf);

impl RealDirectory {
    /// The directory of this path, which must be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Directory for RealDirectory {
    type File = RealFile;
    type Lock = RealLock;

    fn open(&self, name: &str, mode: Mode) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            Mode::Read => &mut options,
            Mode::Write => options.write(true),
            Mode::Create => options.write(true).create(true).truncate(true),
        };
        options.open(self.0.join(name)).map(RealFile)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            // What is not text is not of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn lock(&self, name: &str, how: Hold) -> io::Result<RealLock> {
        let path = self.0.join(name);
        let (file, locked) = match how {
            Hold::Alone => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
                let locked = file.try_lock();
                (file, locked)
            }
            Hold::Shared => {
                let file = File::open(path)?;
                let locked = file.try_lock_shared();
                (file, locked)
            }
        };
        match locked {
            Ok(()) => Ok(RealLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// A file of the system.
#[derive(Debug)]
pub struct RealFile(File);

/// How many zeros are written at once.
const ZEROS: usize = 1 << 20;

impl StoreFile for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn preallocate(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS];
        let mut offset = 0;
        while offset < bytes {
            let some = usize::try_from(bytes - offset).map_or(ZEROS, |rest| rest.min(ZEROS));
            self.0.write_all_at(&zeros[..some], offset)?;
            offset += some as u64;
            // In parts, so that the syncs of others need not wait for all of it.
            if offset.is_multiple_of(8 * ZEROS as u64) {
                self.0.sync_data()?;
            }
        }
        self.0.set_len(bytes)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

/// The held lock of a [`RealDirectory`].
#[derive(Debug)]
pub struct RealLock {
    /// Its descriptor holds the lock.
    _file: File,
}
