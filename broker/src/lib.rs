//! Topics over a ledger: publishing, and subscriptions that share messages out.
//!
//! A [`Topic`] appends what is published to its ledger. A [`Subscription`] has a cursor and a dispatcher, which reads when consumers have
//! permits and gives each message to its [`Consumer`]: all to one, or by key. What consumers acknowledge is kept no longer.
//!
//! It is thin: consumers do not come and go, and nothing is redelivered.
#![forbid(unsafe_code)]

mod consumer;
mod dispatch;
mod hash;
mod notifier;
mod retry;
mod selector;
mod subscription;
mod topic;

pub use consumer::{Consumer, Message};
pub use selector::KeyOf;
pub use subscription::{Kind, Start, SubscribeError, Subscription, SubscriptionOptions};
pub use topic::Topic;

/// The example of the README, which is run with those here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
