//! Worlds that are broken on purpose: each breaks a promise that the engine relies on, and must be caught. They show that the
//! checks can fail.

/// One broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// The store appends without looking at the version.
    ForgetVersion,
    /// The store makes a new run of a request id that was used.
    ForgetRequestId,
    /// The store says that it committed and now and then has not.
    LyingCommit,
    /// The store never tells a sweeper anything.
    BlindSweep,
    /// The store keeps the leases of claims that are over.
    KeepLeases,
    /// The store changes an output that it has.
    ChangeOutput,
    /// The store gives a run to its reader with another output than was written.
    MisreadOutput,
    /// The store's column of costs misses what a commit adds.
    StaleCost,
    /// The store books whatever a budget's cap says.
    ForgetCap,
    /// The store does not book what a run gives back when it ends.
    ForgetBooking,
    /// The limiter forgets how many calls a worker takes.
    ForgetLimit,
    /// The limiter forgets the pause that a vendor asked for.
    ForgetPause,
    /// Nodes go by their wall clocks and do not know that one is wrong.
    TrustClock,
    /// No node can read what a newer version writes.
    NobodyReads,
    /// The step cache answers a request with the output of another.
    MixOutputs,
    /// The queue does not hear acks.
    DeafQueue,
    /// The store loses a run that it accepted.
    LoseRun,
    /// The live stream gives what one attempt wrote as another's.
    MixFrames,
    /// The conductor's plan loses what its steps should see.
    BlindPlan,
    /// The vendor answers a call with another call's text.
    SwapAnswer,
    /// The vendor says of a call that broke off before any text that it did in the middle.
    DenyText,
    /// On the way to the vendor a prompt loses a mark of an output.
    MuddlePrompt,
    /// A call panics.
    Panic,
}

impl Mutation {
    /// The name that the command line takes.
    pub fn name(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
