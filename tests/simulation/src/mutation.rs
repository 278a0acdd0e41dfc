//! Worlds that are broken on purpose. Each breaks a promise that the engine relies on, and an invariant must catch it. So they
//! show that the checks can fail.

/// One broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// The store appends without checking the version.
    ForgetVersion,
    /// The store creates a second run for a known request id.
    ForgetRequestId,
    /// The store reports commits that it sometimes did not make.
    LyingCommit,
    /// The store returns nothing to a sweeper.
    BlindSweep,
    /// The store lets no lease of a process end.
    KeepLeases,
    /// The store changes a stored output.
    ChangeOutput,
    /// The store returns a run with another output than was written.
    MisreadOutput,
    /// The store does not update its column of costs.
    StaleCost,
    /// The store books beyond a budget's cap.
    ForgetCap,
    /// The store does not release the reservation of a run that ends.
    ForgetBooking,
    /// The limiter ignores the limit of concurrent calls.
    ForgetLimit,
    /// The limiter ignores the pause that a vendor requested.
    ForgetPause,
    /// Nodes use their wall clocks and do not notice that one is wrong.
    TrustClock,
    /// No node can read the runs of a newer version.
    UnreadableRuns,
    /// The step cache answers a request with the output of another.
    MixOutputs,
    /// The queue ignores acks.
    DeafQueue,
    /// The store loses a run that it accepted.
    LoseRun,
    /// The live stream attributes text to another attempt.
    MixFrames,
    /// The conductor's plan loses its access lists.
    BlindPlan,
    /// The vendor answers a call with another call's text.
    SwapAnswer,
    /// The vendor reports a call that broke off before any text as broken off in the middle.
    DenyText,
    /// A prompt loses a marker of an output on its way to the vendor.
    MuddlePrompt,
    /// A tool result changes on its way to the vendor.
    MuddleResult,
    /// A call panics.
    Panic,
}

impl Mutation {
    /// The name on the command line.
    pub fn name(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
