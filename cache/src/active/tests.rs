//! How deep the tree is: what an operation costs.

use super::tree::Tree;

/// Nodes on the way to a position of ten thousand: a tree in balance has 14.
const DEEPEST: u32 = 40;

/// 1.11: with ten thousand cursors an operation looks at a few nodes, in whichever order they came, went and moved.
#[test]
fn ten_thousand_cursors_are_a_few_steps_away() {
    const CURSORS: i64 = 10_000;
    type Order = fn(i64) -> i64;
    let orders: [(&str, Order); 4] = [
        ("rising", |at| at),
        ("falling", |at| CURSORS - at),
        ("from both ends", |at| if at % 2 == 0 { at } else { -at }),
        ("scattered", |at| at * 7_919 % CURSORS),
    ];
    for (name, order) in orders {
        let mut tree = Tree::new();
        (0..CURSORS).for_each(|at| tree.insert((1, order(at))));
        assert!(tree.depth() <= DEEPEST, "{name}: {} deep", tree.depth());
        // They leap over each other, as readers of batches do.
        for round in 0..3 {
            for at in 0..CURSORS {
                let from = order(at) + round * CURSORS;
                tree.remove((1, from));
                tree.insert((1, from + CURSORS));
            }
            assert!(tree.depth() <= DEEPEST, "{name}, round {round}: {} deep", tree.depth());
        }
        assert_eq!(tree.len(), u32::try_from(CURSORS).unwrap());
        assert_eq!(tree.nodes(), usize::try_from(CURSORS).unwrap() + 1, "moving takes no more nodes");
    }
}

/// 1.11: cursors at one position are one node.
#[test]
fn cursors_at_one_position_are_one_node() {
    let mut tree = Tree::new();
    (0..10_000).for_each(|_| tree.insert((1, 7)));
    assert_eq!((tree.len(), tree.depth(), tree.at_or_before((1, 7))), (10_000, 1, 10_000));
    (0..10_000).for_each(|_| tree.remove((1, 7)));
    assert_eq!((tree.len(), tree.depth(), tree.first()), (0, 0, None));
}
