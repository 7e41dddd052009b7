//! A work whose steps are a closure, and which logs what it is given.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::{Arc, Mutex};

use folio_turn::{Demand, Next, Panicked, Recovery, Stranded, Turn, Why, Work};

pub(crate) const GO: Demand = Demand::soft(0);
pub(crate) const OTHER: Demand = Demand::soft(1);
pub(crate) const RESULT: Demand = Demand::urgent(0);
pub(crate) const MEND: Demand = Demand::urgent(1);

pub(crate) type Step = Box<dyn FnMut(&Turn<Script>, Demand) -> Next + Send>;
pub(crate) type OnPanic = Box<dyn FnMut(&Turn<Script>, Demand) -> Recovery + Send>;
pub(crate) type OnStranded = Box<dyn FnMut(Stranded<Script>) + Send>;

/// A work whose steps are a closure, and which logs what it is given.
pub(crate) struct Script {
    pub(crate) step: Step,
    pub(crate) on_panic: OnPanic,
    pub(crate) shared: Arc<Shared>,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) given: Mutex<Vec<Demand>>,
    pub(crate) on_stranded: Mutex<Option<OnStranded>>,
    pub(crate) stranded: Mutex<Vec<Why>>,
}

impl Work for Script {
    fn step(&mut self, turn: &Turn<Self>, demand: Demand) -> Next {
        self.shared.given.lock().unwrap().push(demand);
        (self.step)(turn, demand)
    }

    fn panicked(&mut self, turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        (self.on_panic)(turn, panicked.demand)
    }

    fn stranded(mut stranded: Stranded<Self>) {
        let shared = stranded.ownership.with(|script| Arc::clone(&script.shared));
        shared.stranded.lock().unwrap().push(stranded.why);
        let on_stranded = shared.on_stranded.lock().unwrap().take();
        if let Some(mut act) = on_stranded {
            act(stranded);
        }
    }
}

pub(crate) fn script(
    step: impl FnMut(&Turn<Script>, Demand) -> Next + Send + 'static,
) -> (Script, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let script = Script {
        step: Box::new(step),
        on_panic: Box::new(|_, demand| Recovery::Propagate(demand)),
        shared: Arc::clone(&shared),
    };
    (script, shared)
}

impl Shared {
    pub(crate) fn given(&self) -> Vec<Demand> {
        std::mem::take(&mut self.given.lock().unwrap())
    }

    pub(crate) fn stranded(&self) -> Vec<Why> {
        std::mem::take(&mut self.stranded.lock().unwrap())
    }

    pub(crate) fn when_stranded(&self, act: impl FnMut(Stranded<Script>) + Send + 'static) {
        *self.on_stranded.lock().unwrap() = Some(Box::new(act));
    }
}

/// Counts down: that many steps have something to do.
pub(crate) fn countdown(mut left: usize) -> impl FnMut(&Turn<Script>, Demand) -> Next + Send {
    move |_, _| {
        if left == 0 {
            return Next::Idle;
        }
        left -= 1;
        Next::Again
    }
}
