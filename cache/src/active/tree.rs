//! How many there are at or before a position: a treap with the number of cursors below each node.
//!
//! A binary search tree by position that is a heap by priority: with priorities that are as good as random its depth is logarithmic, whatever is put in
//! and in which order (Seidel and Aragon, randomized search trees).

use std::cmp::Ordering;

use crate::range::Position;

/// The index of no node: of the first one, which stands for an empty tree.
const NIL: u32 = 0;

#[derive(Clone, Copy)]
struct Node {
    position: Position,
    /// Cursors at this position.
    here: u32,
    /// Cursors at this position and below this node.
    sum: u32,
    /// Not below that of any node under it.
    priority: u32,
    left: u32,
    /// In a free node: the next free one.
    right: u32,
}

const EMPTY: Node = Node { position: (0, 0), here: 0, sum: 0, priority: 0, left: NIL, right: NIL };

/// A multiset of positions.
pub(super) struct Tree {
    nodes: Vec<Node>,
    root: u32,
    /// The first free node.
    free: u32,
    /// Nodes that were ever made or used again: what the next priority is made of.
    made: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { nodes: vec![EMPTY], root: NIL, free: NIL, made: 0 }
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.node(self.root).sum
    }

    /// How many there are at this position and before it.
    pub(super) fn at_or_before(&self, position: Position) -> u32 {
        let (mut at, mut sum) = (self.root, 0);
        while at != NIL {
            let node = self.node(at);
            if node.position <= position {
                sum += self.node(node.left).sum + node.here;
                at = node.right;
            } else {
                at = node.left;
            }
        }
        sum
    }

    /// The first position.
    pub(super) fn first(&self) -> Option<Position> {
        let (mut at, mut first) = (self.root, None);
        while at != NIL {
            first = Some(self.node(at).position);
            at = self.node(at).left;
        }
        first
    }

    /// Adds one at this position.
    pub(super) fn insert(&mut self, position: Position) {
        self.root = self.insert_below(self.root, position);
    }

    /// Takes one away at this position, where there is one.
    pub(super) fn remove(&mut self, position: Position) {
        self.root = self.remove_below(self.root, position);
    }

    fn insert_below(&mut self, at: u32, position: Position) -> u32 {
        if at == NIL {
            return self.make(position);
        }
        self.node_mut(at).sum += 1;
        match position.cmp(&self.node(at).position) {
            Ordering::Equal => self.node_mut(at).here += 1,
            Ordering::Less => {
                let left = self.insert_below(self.node(at).left, position);
                self.node_mut(at).left = left;
                if self.node(left).priority > self.node(at).priority {
                    self.node_mut(at).left = self.node(left).right;
                    self.node_mut(left).right = at;
                    return self.turned(at, left);
                }
            }
            Ordering::Greater => {
                let right = self.insert_below(self.node(at).right, position);
                self.node_mut(at).right = right;
                if self.node(right).priority > self.node(at).priority {
                    self.node_mut(at).right = self.node(right).left;
                    self.node_mut(right).left = at;
                    return self.turned(at, right);
                }
            }
        }
        at
    }

    /// Sums up after a rotation that has put a node below another one, which is returned.
    fn turned(&mut self, below: u32, above: u32) -> u32 {
        self.sum_up(below);
        self.sum_up(above);
        above
    }

    fn remove_below(&mut self, at: u32, position: Position) -> u32 {
        debug_assert!(at != NIL, "a cursor stands where it was put");
        if at == NIL {
            return NIL;
        }
        match position.cmp(&self.node(at).position) {
            Ordering::Equal if self.node(at).here == 1 => {
                let Node { left, right, .. } = *self.node(at);
                self.release(at);
                return self.merge(left, right);
            }
            Ordering::Equal => self.node_mut(at).here -= 1,
            Ordering::Less => self.node_mut(at).left = self.remove_below(self.node(at).left, position),
            Ordering::Greater => self.node_mut(at).right = self.remove_below(self.node(at).right, position),
        }
        self.sum_up(at);
        at
    }

    /// One tree of two, of which all in the one come before all in the other.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return left.max(right);
        }
        let top = if self.node(left).priority >= self.node(right).priority {
            self.node_mut(left).right = self.merge(self.node(left).right, right);
            left
        } else {
            self.node_mut(right).left = self.merge(left, self.node(right).left);
            right
        };
        self.sum_up(top);
        top
    }

    fn sum_up(&mut self, at: u32) {
        let Node { left, right, here, .. } = *self.node(at);
        self.node_mut(at).sum = here + self.node(left).sum + self.node(right).sum;
    }

    fn make(&mut self, position: Position) -> u32 {
        self.made += 1;
        let node = Node { position, here: 1, sum: 1, priority: mix(self.made), ..EMPTY };
        let at = self.free;
        if at == NIL {
            self.nodes.push(node);
            return u32::try_from(self.nodes.len() - 1).expect("there are fewer than 2^32 cursors");
        }
        self.free = self.node(at).right;
        *self.node_mut(at) = node;
        at
    }

    /// The most nodes on the way to one.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn depth(&self) -> u32 {
        fn below(tree: &Tree, at: u32) -> u32 {
            if at == NIL {
                0
            } else {
                1 + below(tree, tree.node(at).left).max(below(tree, tree.node(at).right))
            }
        }
        below(self, self.root)
    }

    /// Nodes that there is room for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn release(&mut self, at: u32) {
        *self.node_mut(at) = Node { right: self.free, ..EMPTY };
        self.free = at;
    }
}

/// Well mixed bits of a number (`SplitMix64`).
fn mix(number: u64) -> u32 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 32) as u32
}
