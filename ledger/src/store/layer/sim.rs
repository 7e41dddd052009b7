//! A directory that loses at a crash what was not synced.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};

use folio_sync::{Arc, Mutex};

use super::{Directory, Hold, Mode, StoreFile};
use crate::store::faulty::Seed;

/// What a disk writes whole or not, mostly.
const SECTOR: usize = 512;

/// A kind of operation on a [`SimDirectory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writing to a file.
    Write,
    /// Reading from a file.
    Read,
    /// Syncing a file.
    Sync,
    /// Syncing the directory.
    SyncDirectory,
    /// Opening or making a file.
    Open,
    /// Filling a file with zeros.
    Preallocate,
    /// Removing a file.
    Remove,
}

/// A directory in memory with a disk below it, on which only what is synced is sure to be.
///
/// At a [`crash`](Self::crash) each sector that was written since the last sync has what some of these writes left there, in part now and then; a file that was
/// made or removed since the directory was synced is there or not. After a sync that failed what was written before is never synced. Clones are the same
/// directory.
#[derive(Clone)]
pub struct SimDirectory(Arc<Mutex<Sim>>);

#[derive(Default)]
struct Sim {
    files: Vec<Inode>,
    /// The names as programs see them, and as they are on disk.
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// Handles of an earlier one are dead.
    boot: u64,
    alone: bool,
    shared: usize,
    room: Option<u64>,
    /// The power goes off after so many more operations.
    power: Option<u64>,
    plan: Vec<(Op, u64, ErrorKind)>,
    counts: [u64; 7],
    read: u64,
}

#[derive(Default)]
struct Inode {
    /// As programs see it, and as it is on disk.
    seen: Vec<u8>,
    disk: Vec<u8>,
    /// What was written since the last sync.
    writes: Vec<(usize, Vec<u8>)>,
}

/// What a crash did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crash {
    /// Sectors that lost a write.
    pub lost: usize,
    /// Sectors of which only the beginning was written.
    pub torn: usize,
    /// Files that are not there any more, or again.
    pub names: usize,
}

impl Inode {
    fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if into.len() < end {
            into.resize(end, 0);
        }
        into[offset..end].copy_from_slice(bytes);
    }

    fn sync(&mut self) {
        for (offset, bytes) in self.writes.drain(..) {
            Self::write(&mut self.disk, offset, &bytes);
        }
    }

    fn crash(&mut self, seed: &mut Seed, crash: &mut Crash) {
        let mut sectors = BTreeMap::<usize, Vec<(usize, Vec<u8>)>>::new();
        for (offset, bytes) in self.writes.drain(..) {
            let mut at = 0;
            while at < bytes.len() {
                let sector = (offset + at) / SECTOR;
                let end = ((sector + 1) * SECTOR - offset).min(bytes.len());
                sectors.entry(sector).or_default().push((offset + at, bytes[at..end].to_vec()));
                at = end;
            }
        }
        // Now and then a disk has written nothing yet, or all of it.
        let mood = seed.below(5);
        for writes in sectors.into_values() {
            let kept = match mood {
                0 => 0,
                1 => writes.len() as u64,
                _ => seed.below(writes.len() as u64 + 1),
            };
            let mut left = kept;
            for (offset, bytes) in writes {
                if left == 0 {
                    crash.lost += 1;
                    if mood > 1 && seed.happens(100) {
                        crash.torn += 1;
                        let some = usize::try_from(seed.below(bytes.len() as u64)).unwrap_or(0);
                        Self::write(&mut self.disk, offset, &bytes[..some]);
                    }
                    break;
                }
                left -= 1;
                Self::write(&mut self.disk, offset, &bytes);
            }
        }
        self.seen.clone_from(&self.disk);
    }
}

impl Sim {
    /// Counts an operation and lets it fail if it is to.
    fn step(&mut self, op: Op, boot: u64) -> io::Result<()> {
        if boot != self.boot {
            return Err(io::Error::other("the process of this handle is dead"));
        }
        match &mut self.power {
            Some(0) => return Err(io::Error::other("the power is off")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.counts[op as usize] += 1;
        let mut fails = None;
        self.plan.retain_mut(|(of, after, kind)| {
            if *of == op {
                if *after == 0 {
                    fails = Some(*kind);
                    return false;
                }
                *after -= 1;
            }
            true
        });
        fails.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].seen.len() as u64).sum()
    }

    fn takes(&self, more: usize) -> io::Result<()> {
        match self.room {
            Some(room) if self.used() + more as u64 > room => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl SimDirectory {
    /// Empty.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Sim::default())))
    }

    /// Lets an operation of a kind fail: the next one, or the one after so many others. A write that fails has written a part.
    pub fn fail(&self, op: Op, after: u64, kind: ErrorKind) {
        self.0.lock().plan.push((op, after, kind));
    }

    /// All files together may have so many bytes, or any number.
    pub fn set_room(&self, room: Option<u64>) {
        self.0.lock().room = room;
    }

    /// How many bytes all files have.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// The power goes off after so many operations more: all others fail until the crash.
    pub fn power_off_after(&self, operations: u64) {
        self.0.lock().power = Some(operations);
    }

    /// Loses what is not synced, as the seed says; handles and locks are gone, and the power is on.
    pub fn crash(&self, seed: &mut Seed) -> Crash {
        let mut sim = self.0.lock();
        let mut crash = Crash::default();
        for file in &mut sim.files {
            file.crash(seed, &mut crash);
        }
        let (programs, disks) = (std::mem::take(&mut sim.names), std::mem::take(&mut sim.synced_names));
        let mut names = disks.clone();
        for name in programs.keys().chain(disks.keys()) {
            let (now, disk) = (programs.get(name), disks.get(name));
            if now == disk {
                continue;
            }
            let keeps = seed.happens(500);
            crash.names += usize::from(!keeps);
            match (keeps, now) {
                (true, Some(&file)) => drop(names.insert(name.clone(), file)),
                (true, None) => drop(names.remove(name)),
                (false, _) => {}
            }
        }
        sim.names.clone_from(&names);
        sim.synced_names = names;
        Self::end(&mut sim);
        crash
    }

    /// The process dies: handles and locks are gone, all else stays as programs see it.
    pub fn kill(&self) {
        Self::end(&mut self.0.lock());
    }

    fn end(sim: &mut Sim) {
        sim.boot += 1;
        sim.power = None;
        sim.alone = false;
        sim.shared = 0;
        sim.plan.clear();
    }

    /// How many operations of a kind there were.
    pub fn count(&self, op: Op) -> u64 {
        self.0.lock().counts[op as usize]
    }

    /// How many bytes were read.
    pub fn bytes_read(&self) -> u64 {
        self.0.lock().read
    }

    /// What a file has; empty if it is not there.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let sim = self.0.lock();
        sim.names.get(name).map(|&file| sim.files[file].seen.clone()).unwrap_or_default()
    }

    /// Makes a file have this, on disk.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut sim = self.0.lock();
        let file = sim.files.len();
        sim.files.push(Inode { seen: bytes.clone(), disk: bytes, writes: Vec::new() });
        sim.names.insert(name.to_owned(), file);
        sim.synced_names.insert(name.to_owned(), file);
    }
}

impl Default for SimDirectory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDirectory").finish_non_exhaustive()
    }
}

impl Directory for SimDirectory {
    type File = SimFile;
    type Lock = SimLock;

    fn open(&self, name: &str, mode: Mode) -> io::Result<SimFile> {
        let mut sim = self.0.lock();
        let boot = sim.boot;
        sim.step(Op::Open, boot)?;
        let file = if mode == Mode::Create {
            sim.files.push(Inode::default());
            let file = sim.files.len() - 1;
            sim.names.insert(name.to_owned(), file);
            file
        } else {
            *sim.names.get(name).ok_or(ErrorKind::NotFound)?
        };
        Ok(SimFile { directory: self.clone(), file, boot, writes: mode != Mode::Read })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut sim = self.0.lock();
        let boot = sim.boot;
        sim.step(Op::Remove, boot)?;
        sim.names.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut sim = self.0.lock();
        let boot = sim.boot;
        sim.step(Op::SyncDirectory, boot)?;
        let names = sim.names.clone();
        sim.synced_names = names;
        Ok(())
    }

    fn lock(&self, name: &str, how: Hold) -> io::Result<SimLock> {
        let mut sim = self.0.lock();
        let free = match how {
            Hold::Alone => !sim.alone && sim.shared == 0,
            Hold::Shared => !sim.alone,
        };
        if !free {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !sim.names.contains_key(name) {
            if how == Hold::Shared {
                return Err(ErrorKind::NotFound.into());
            }
            sim.files.push(Inode::default());
            let file = sim.files.len() - 1;
            sim.names.insert(name.to_owned(), file);
        }
        match how {
            Hold::Alone => sim.alone = true,
            Hold::Shared => sim.shared += 1,
        }
        Ok(SimLock { directory: self.clone(), how, boot: sim.boot })
    }
}

/// A file of a [`SimDirectory`].
pub struct SimFile {
    directory: SimDirectory,
    file: usize,
    boot: u64,
    writes: bool,
}

impl StoreFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut sim = self.directory.0.lock();
        if !self.writes {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let step = sim.step(Op::Write, self.boot);
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let grows = (offset + bytes.len()).saturating_sub(sim.files[self.file].seen.len());
        let step = step.and_then(|()| sim.takes(grows));
        let dead = sim.power == Some(0) && step.is_err();
        let some = match &step {
            Ok(()) => bytes,
            // What is under way as something fails may get there.
            Err(_) if grows == 0 && self.boot == sim.boot && !dead => &bytes[..bytes.len() / 2],
            Err(_) => &[],
        };
        let file = &mut sim.files[self.file];
        if !some.is_empty() {
            Inode::write(&mut file.seen, offset, some);
            file.writes.push((offset, some.to_vec()));
        }
        step
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut sim = self.directory.0.lock();
        sim.step(Op::Read, self.boot)?;
        let seen = &sim.files[self.file].seen;
        let from = usize::try_from(offset).ok().and_then(|offset| seen.get(offset..));
        let bytes = from.and_then(|from| from.get(..into.len())).ok_or(ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        sim.read += into.len() as u64;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut sim = self.directory.0.lock();
        let step = sim.step(Op::Sync, self.boot);
        let off = sim.power == Some(0);
        let boot = sim.boot;
        let file = &mut sim.files[self.file];
        match &step {
            Ok(()) => file.sync(),
            // The system takes what it could not write for written.
            Err(_) if self.boot == boot && !off => file.writes.clear(),
            Err(_) => {}
        }
        step
    }

    fn preallocate(&self, bytes: u64) -> io::Result<()> {
        let mut sim = self.directory.0.lock();
        sim.step(Op::Preallocate, self.boot)?;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        sim.takes(bytes.saturating_sub(sim.files[self.file].seen.len()))?;
        let file = &mut sim.files[self.file];
        file.seen = vec![0; bytes];
        file.writes.push((0, vec![0; bytes]));
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.directory.0.lock().files[self.file].seen.len() as u64)
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The held lock of a [`SimDirectory`].
#[derive(Debug)]
pub struct SimLock {
    directory: SimDirectory,
    how: Hold,
    boot: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut sim = self.directory.0.lock();
        if self.boot == sim.boot {
            match self.how {
                Hold::Alone => sim.alone = false,
                Hold::Shared => sim.shared -= 1,
            }
        }
    }
}
