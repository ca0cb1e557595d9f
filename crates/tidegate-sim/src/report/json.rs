//! Reports as JSON, the keys that programs read. A field that means nothing in a scenario is absent.

use serde_json::{Map, Value, json};

use super::{FleetLine, Line, Mean, Paired, Report, RoundLine, TenantLine};

/// One object for one variant; several are one object each in `runs`.
pub fn report_json(scenario: &str, seed_start: u64, reports: &[Report]) -> Value {
    if let [only] = reports {
        return one(scenario, seed_start, only);
    }
    json!({ "scenario": scenario, "runs": reports.iter().map(|r| one(scenario, seed_start, r)).collect::<Vec<_>>() })
}

fn one(scenario: &str, seed_start: u64, report: &Report) -> Value {
    let mut object = Object::default();
    object.put("scenario", Some(json!(scenario)));
    object.put("variant", report.variant.as_ref().map(|v| json!(v)));
    object.put("seeds", Some(json!(report.seeds)));
    object.put("seed_start", Some(json!(seed_start)));
    object.put("trace", report.trace.as_ref().map(|t| json!(t)));
    object.put("notes", some(report.notes.iter().map(|n| json!(n)).collect()));
    object.number("saturation_rps", report.saturation_rps);
    object.put("policies", Some(report.lines.iter().map(|l| line(l, &report.endpoints)).collect()));
    object.put("paired", some(report.paired.iter().map(paired).collect()));
    object.put("tenants", some(report.tenants.iter().map(tenant).collect()));
    object.put("rounds", some(report.rounds.iter().map(round).collect()));
    object.0.into()
}

/// `None` for an empty list.
fn some(list: Vec<Value>) -> Option<Value> {
    (!list.is_empty()).then(|| list.into())
}

#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value);
        }
    }

    fn number(&mut self, name: &str, value: Option<f64>) {
        self.put(name, value.map(|v| json!(v)));
    }

    fn mean(&mut self, name: &str, error: &str, value: Mean) {
        self.number(name, value.mean);
        self.number(error, value.se);
    }
}

fn line(l: &Line, endpoints: &[String]) -> Value {
    let mut object = Object::default();
    object.put("name", Some(json!(l.name)));
    object.put("requests", Some(json!(l.requests)));
    object.mean("mean_latency_s", "se_latency_s", l.latency_s);
    object.number("p50_s", l.p50_s);
    object.number("p99_s", l.p99_s);
    object.number("mean_ttft_s", l.ttft_s);
    object.number("p50_ttft_s", l.p50_ttft_s);
    object.number("p90_ttft_s", l.p90_ttft_s);
    object.number("p99_ttft_s", l.p99_ttft_s);
    object.mean("success", "se_success", l.success);
    object.number("goodput", l.goodput);
    object.number("imbalance", Some(l.imbalance));
    object.put("retries", Some(json!(l.retries)));
    object.number("query_hit_rate", l.query_hits);
    object.number("prompt_hit_rate", l.prompt_hits);
    object.put("fleet", l.fleet.as_ref().map(fleet));
    let share: Map<String, Value> = endpoints.iter().cloned().zip(l.shares.iter().map(|s| json!(s))).collect();
    object.put("share", Some(share.into()));
    object.0.into()
}

fn fleet(f: &FleetLine) -> Value {
    let mut object = Object::default();
    object.mean("endpoint_s", "se_endpoint_s", f.endpoint_s);
    object.number("mean_endpoints", Some(f.mean));
    object.put("most_endpoints", Some(json!(f.most)));
    object.number("starts", Some(f.starts));
    object.put("failed", Some(json!(f.failed)));
    object.put("shed", Some(json!(f.shed)));
    object.put("failed_in_change", Some(json!(f.in_change)));
    object.0.into()
}

fn tenant(t: &TenantLine) -> Value {
    let mut object = Object::default();
    object.put("row", Some(json!(t.row)));
    object.put("tenant", Some(json!(t.tenant)));
    object.put("tenants", Some(json!(t.tenants)));
    object.put("requests", Some(json!(t.requests)));
    object.number("success", Some(t.success));
    object.number("p50_s", t.p50_s);
    object.number("p99_s", t.p99_s);
    object.number("refused", Some(t.refused));
    object.0.into()
}

fn paired(p: &Paired) -> Value {
    let mut object = Object::default();
    object.put("a", Some(json!(p.a)));
    object.put("b", Some(json!(p.b)));
    object.mean("latency_s", "se_latency_s", p.latency_s);
    object.mean("success", "se_success", p.success);
    object.0.into()
}

fn round(r: &RoundLine) -> Value {
    let mut object = Object::default();
    object.put("policy", Some(json!(r.policy)));
    object.put("round", Some(json!(r.round)));
    object.number("total_s", Some(r.total_s));
    object.number("ideal_s", r.ideal_s);
    object.0.into()
}
