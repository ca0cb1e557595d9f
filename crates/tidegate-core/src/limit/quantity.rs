//! What is counted, of whom, and what a request asks.

/// What a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Requests, each one.
    Requests,
    /// Tokens of the prompt.
    PromptTokens,
    /// Tokens of the answer.
    OutputTokens,
    /// Both.
    TotalTokens,
    /// Money or whatever the shell counts, in its own unit.
    Cost,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Requests, Self::PromptTokens, Self::OutputTokens, Self::TotalTokens, Self::Cost];

    /// The word in a config file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::PromptTokens => "prompt_tokens",
            Self::OutputTokens => "output_tokens",
            Self::TotalTokens => "total_tokens",
            Self::Cost => "cost",
        }
    }
}

/// Of whom a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everybody together.
    Global,
    /// Each tenant.
    Tenant,
    /// Each model.
    Model,
    /// Each route.
    Route,
}

impl Scope {
    /// All of them, widest first.
    pub const ALL: [Self; 4] = [Self::Global, Self::Tenant, Self::Model, Self::Route];

    /// The word in a config file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Tenant => "tenant",
            Self::Model => "model",
            Self::Route => "route",
        }
    }

    /// The code of a refusal by a rate.
    pub const fn rate_code(self) -> &'static str {
        match self {
            Self::Global => "global_rate_limit_exceeded",
            Self::Tenant => "tenant_rate_limit_exceeded",
            Self::Model => "model_rate_limit_exceeded",
            Self::Route => "route_rate_limit_exceeded",
        }
    }

    /// The code of a refusal by a number of requests in flight.
    pub const fn concurrency_code(self) -> &'static str {
        match self {
            Self::Global => "global_concurrency_limit_exceeded",
            Self::Tenant => "tenant_concurrency_limit_exceeded",
            Self::Model => "model_concurrency_limit_exceeded",
            Self::Route => "route_concurrency_limit_exceeded",
        }
    }
}

/// What a request asks before it is sent. Names are the shell's; the empty name is one like any other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ask<'a> {
    /// Who pays.
    pub tenant: &'a str,
    /// The model that was asked for.
    pub model: &'a str,
    /// The route that matched.
    pub route: &'a str,
    /// Prompt tokens, estimated or counted.
    pub prompt_tokens: f64,
    /// Output tokens, estimated ([`super::OutputEstimate`]).
    pub output_tokens: f64,
    /// Cost, estimated.
    pub cost: f64,
    /// No engine does anything for it: limits on tokens and cost neither count nor refuse it, also where they are in debt.
    pub asks_no_engine: bool,
}

impl<'a> Ask<'a> {
    /// What it asks of a quantity; negative and NaN count as zero.
    pub fn amount(&self, quantity: Quantity) -> f64 {
        amount(quantity, 1.0, self.prompt_tokens, self.output_tokens, self.cost)
    }

    /// Its name in a scope.
    pub fn name(&self, scope: Scope) -> &'a str {
        match scope {
            Scope::Global => "",
            Scope::Tenant => self.tenant,
            Scope::Model => self.model,
            Scope::Route => self.route,
        }
    }
}

/// What a request used, as the engine reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// Prompt tokens.
    pub prompt_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Cost.
    pub cost: f64,
}

impl Actual {
    /// What it used of a quantity; a settled request is one request. Negative and NaN count as zero.
    pub fn amount(&self, quantity: Quantity) -> f64 {
        amount(quantity, 1.0, self.prompt_tokens, self.output_tokens, self.cost)
    }
}

fn amount(quantity: Quantity, requests: f64, prompt: f64, output: f64, cost: f64) -> f64 {
    match quantity {
        Quantity::Requests => requests,
        Quantity::PromptTokens => prompt.max(0.0),
        Quantity::OutputTokens => output.max(0.0),
        Quantity::TotalTokens => prompt.max(0.0) + output.max(0.0),
        Quantity::Cost => cost.max(0.0),
    }
}
