//! A global allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Sub;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;

#[repr(align(128))]
struct Shard {
    allocations: AtomicU64,
    frees: AtomicU64,
    allocated_bytes: AtomicU64,
    freed_bytes: AtomicU64,
}

static COUNTS: [Shard; SHARDS] = [const {
    Shard {
        allocations: AtomicU64::new(0),
        frees: AtomicU64::new(0),
        allocated_bytes: AtomicU64::new(0),
        freed_bytes: AtomicU64::new(0),
    }
}; SHARDS];

static NEXT: AtomicUsize = AtomicUsize::new(0);

static PAUSED: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    /// The shard of this thread; `SHARDS` before the first allocation.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}

fn shard() -> &'static Shard {
    // Without a destructor the value is there until the thread's last allocation.
    let index = SHARD.with(|shard| {
        if shard.get() == SHARDS {
            // Relaxed: any even distribution of threads does.
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    });
    &COUNTS[index]
}

/// Counts the allocations of all threads and passes them on to another allocator.
///
/// ```
/// use folio_sync::test_util::alloc::{self, Counting, Counts};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting::system();
///
/// let before = Counts::now();
/// drop(std::hint::black_box(Box::new(7_u64)));
/// let during = Counts::now() - before;
/// assert_eq!((during.allocations, during.frees, during.allocated_bytes), (1, 1, 8));
///
/// alloc::pause();
/// let before = Counts::now();
/// drop(std::hint::black_box(Box::new(7_u64)));
/// assert_eq!(Counts::now() - before, Counts::default(), "not counted while paused");
/// alloc::resume();
/// ```
#[derive(Debug)]
pub struct Counting<A = System>(A);

impl Counting<System> {
    /// Counts in front of the system's allocator.
    pub const fn system() -> Self {
        Self(System)
    }
}

impl<A> Counting<A> {
    /// Counts in front of another allocator.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

/// Stops counting, on all threads: what is timed meanwhile does not pay for the counters.
pub fn pause() {
    // Relaxed: a switch that publishes nothing; a thread that runs now may see it late.
    PAUSED.store(true, Ordering::Relaxed);
}

/// Counts again after a [`pause`].
pub fn resume() {
    // Relaxed: as in `pause`.
    PAUSED.store(false, Ordering::Relaxed);
}

fn paused() -> bool {
    // Relaxed: as in `pause`.
    PAUSED.load(Ordering::Relaxed)
}

fn count_allocation(bytes: usize) {
    if paused() {
        return;
    }
    let shard = shard();
    // Relaxed: counts that publish nothing; who reads them has synchronised with the threads that it asks about.
    shard.allocations.fetch_add(1, Ordering::Relaxed);
    shard.allocated_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

fn count_free(bytes: usize) {
    if paused() {
        return;
    }
    let shard = shard();
    // Relaxed: as in `count_allocation`.
    shard.frees.fetch_add(1, Ordering::Relaxed);
    shard.freed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting allocates nothing and does not unwind.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner call.
        let block = unsafe { self.0.alloc(layout) };
        if !block.is_null() {
            count_allocation(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner call.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if !block.is_null() {
            count_allocation(layout.size());
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner call.
        let moved = unsafe { self.0.realloc(block, layout, new_size) };
        if !moved.is_null() {
            count_free(layout.size());
            count_allocation(new_size);
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: the caller's obligations are those of the inner call.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// What was counted up to a moment.
///
/// The difference of two is what happened between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks allocated; a reallocation counts as one more and one less.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
}

impl Counts {
    /// What all threads did up to now; zero unless [`Counting`] is the global allocator.
    ///
    /// What a thread does at the same time may be missing: join it or hear from it first.
    pub fn now() -> Self {
        let mut sum = Self::default();
        for shard in &COUNTS {
            // Relaxed: as in `count_allocation`.
            sum.allocations += shard.allocations.load(Ordering::Relaxed);
            sum.frees += shard.frees.load(Ordering::Relaxed);
            sum.allocated_bytes += shard.allocated_bytes.load(Ordering::Relaxed);
            sum.freed_bytes += shard.freed_bytes.load(Ordering::Relaxed);
        }
        sum
    }

    /// Bytes allocated and not freed.
    pub fn live_bytes(&self) -> i64 {
        self.allocated_bytes.cast_signed() - self.freed_bytes.cast_signed()
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            frees: self.frees - earlier.frees,
            allocated_bytes: self.allocated_bytes - earlier.allocated_bytes,
            freed_bytes: self.freed_bytes - earlier.freed_bytes,
        }
    }
}
