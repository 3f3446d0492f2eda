//! The pipelines of a plan, pushed an item at a time, and restored from their snapshots.

use std::sync::Arc;

use highwater_codec::Reader;
use highwater_engine::{DataErrors, Item, PhysicalPlan, Pipeline, SharedPipeline};
use highwater_query::plan::Plan;

pub(crate) struct Running {
    physical: Arc<PhysicalPlan>,
    /// How many partitions each input has.
    partitions: Vec<usize>,
    /// By input, then partition.
    locals: Vec<Vec<Pipeline>>,
    shared: SharedPipeline,
    /// The errors before the last restart.
    earlier: DataErrors,
}

impl Running {
    pub(crate) fn new(physical: Arc<PhysicalPlan>, partitions: &[usize]) -> Running {
        Running {
            locals: locals(&physical, partitions),
            shared: physical.shared(partitions),
            partitions: partitions.to_vec(),
            earlier: DataErrors::default(),
            physical,
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.physical.plan()
    }

    /// The output.
    pub(crate) fn push(&mut self, input: usize, partition: usize, item: Item) -> Vec<Item> {
        let (mut out, mut results) = (Vec::new(), Vec::new());
        self.locals[input][partition].push(PhysicalPlan::LOCAL_ENTRY, item, &mut out);
        for (exit, item) in out {
            let entry = self.shared.entry(input, exit, partition);
            self.shared.pipeline.push(entry, item, &mut results);
        }
        results.into_iter().map(|(_, item)| item).collect()
    }

    /// Everything that went wrong.
    pub(crate) fn errors(&self) -> DataErrors {
        let mut all = self.earlier.clone();
        let locals = self.locals.iter().flatten();
        locals.for_each(|local| all.merge(local.errors.clone()));
        all.merge(self.shared.pipeline.errors.clone());
        all
    }

    /// The state as bytes.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut writer = Vec::new();
        let locals = self.locals.iter().flatten();
        locals.for_each(|local| local.snapshot(&mut writer));
        self.shared.pipeline.snapshot(&mut writer);
        writer
    }

    /// Writes the state down, forgets everything and reads it back.
    pub(crate) fn restart(&mut self) {
        let bytes = self.snapshot();
        self.earlier = self.errors();
        self.locals = locals(&self.physical, &self.partitions);
        self.shared = self.physical.shared(&self.partitions);
        let mut reader = Reader::new(&bytes);
        for local in self.locals.iter_mut().flatten() {
            local.restore(&mut reader).expect("the snapshot is whole");
        }
        let shared = &mut self.shared.pipeline;
        shared.restore(&mut reader).expect("the snapshot is whole");
        assert!(reader.is_done(), "all of a snapshot is read");
        assert_eq!(self.snapshot(), bytes, "what was restored is the same");
    }
}

fn locals(physical: &PhysicalPlan, partitions: &[usize]) -> Vec<Vec<Pipeline>> {
    let inputs = partitions.iter().enumerate();
    inputs
        .map(|(input, &partitions)| (0..partitions).map(|_| physical.local(input)).collect())
        .collect()
}
