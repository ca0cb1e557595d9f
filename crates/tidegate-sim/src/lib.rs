//! Engine models, arrival processes and traces, as pure code in virtual time.
