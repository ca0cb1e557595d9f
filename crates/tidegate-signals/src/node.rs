//! The machine below an engine, by the names of Prometheus' node exporter.
//!
//! Processors: the share of their time between two pages in which they were not idle; waiting for a disk is idle. Counters that fall are those
//! of another boot, or of a processor that was taken out: the next page is the first. The kernel corrects idle time downwards now and then,
//! which looks the same and costs one page. Memory: what is not available, so that what can be given back, such as files that were read, counts
//! as free.

use crate::metric::samples;
use crate::miss::Miss;
use crate::poll::{LoadPage, PageFacts};
use tidegate_config::NodeSource;
use tidegate_core::load::{LoadReport, Unfit};
use tidegate_core::time::Instant;

/// Seconds of each processor by what it did.
const CPU: &str = "node_cpu_seconds_total";
const MEMORY: &str = "node_memory_MemTotal_bytes";
const AVAILABLE: &str = "node_memory_MemAvailable_bytes";
/// What is not work.
const IDLE: [&str; 2] = ["idle", "iowait"];
/// By how much the share has to fall before a busy node counts as free.
const CALMER: f64 = 0.05;

/// Seconds of all processors together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds {
    all: f64,
    idle: f64,
    processors: usize,
}

/// The exporter's page, for one endpoint.
#[derive(Debug)]
pub(crate) struct NodePage {
    source: NodeSource,
    before: Option<Seconds>,
    is_busy: bool,
    facts: PageFacts,
}

impl NodePage {
    pub(crate) fn new(source: &NodeSource) -> Self {
        Self { source: source.clone(), before: None, is_busy: false, facts: PageFacts::default() }
    }

    /// Busy share of the processors since the page before.
    fn busy(&mut self, now: Option<Seconds>) -> Option<f64> {
        let before = std::mem::replace(&mut self.before, now)?;
        let now = now.filter(|now| now.processors == before.processors)?;
        let (all, idle) = (now.all - before.all, now.idle - before.idle);
        (all > 0.0 && idle >= 0.0).then(|| (1.0 - idle / all).max(0.0))
    }

    /// Why the endpoint should get nothing new, as a word and in words.
    fn gate(&mut self, cpu: Option<f64>, memory: Option<f64>) -> Option<(Unfit, String)> {
        let bound = self.source.max_cpu.map(|max| if self.is_busy { (max - CALMER).max(0.0) } else { max });
        if let Some(cpu) = cpu {
            self.is_busy = bound.is_some_and(|max| cpu >= max);
        }
        if let Some(cpu) = cpu.filter(|_| self.is_busy) {
            return Some((Unfit::NodeCpu, format!("the node's processors are busy: {:.1} %", cpu * 100.0)));
        }
        let used = memory.filter(|used| self.source.max_memory.is_some_and(|max| *used >= max))?;
        Some((Unfit::NodeMemory, format!("the node is out of memory: {:.1} % used", used * 100.0)))
    }
}

/// What the page says of processors; `None` where it has none.
fn seconds(page: &str) -> Option<Seconds> {
    let mut sum = Seconds { all: 0.0, idle: 0.0, processors: 0 };
    for sample in samples(page, CPU) {
        let mode = sample.label("mode").unwrap_or_default();
        sum.all += sample.value;
        if IDLE.contains(&mode) {
            sum.idle += sample.value;
        }
        sum.processors += usize::from(mode == "idle");
    }
    (sum.processors > 0).then_some(sum)
}

fn only(page: &str, name: &str) -> Option<f64> {
    samples(page, name).next().map(|s| s.value)
}

impl LoadPage for NodePage {
    const SOURCE: &'static str = "node";
    const LIMIT_BYTES: usize = 4 << 20;

    fn read(&mut self, sampled_at: Instant, body: &[u8]) -> Result<LoadReport, Miss> {
        let page = String::from_utf8_lossy(body);
        let (seconds, total, available) = (seconds(&page), only(&page, MEMORY), only(&page, AVAILABLE));
        let memory = total.zip(available).map(|(total, available)| 1.0 - available / total);
        self.facts = PageFacts { engine: Some("node_exporter"), ..PageFacts::default() };
        self.facts.note("cpu", seconds.is_some());
        self.facts.note("memory", memory.is_some());
        if self.facts.present.is_empty() {
            self.facts.engine = None;
            return Err(Miss::NoSeries("a node exporter's names begin with node_"));
        }
        if let Some(wrong) = seconds.map(|s| s.all).filter(|all| !all.is_finite()) {
            self.before = None;
            return Err(Miss::Impossible(CPU.to_owned(), wrong));
        }
        if let Some(wrong) = memory.filter(|used| !(0.0..=1.0).contains(used)) {
            return Err(Miss::Impossible("used memory".to_owned(), wrong));
        }
        let cpu = self.busy(seconds);
        let gate = self.gate(cpu, memory);
        self.facts.gate = gate.as_ref().map(|(_, why)| why.clone());
        if cpu.is_none() && memory.is_none() {
            return Err(Miss::FirstPage);
        }
        let unfit = gate.map(|(unfit, _)| unfit);
        Ok(LoadReport { sampled_at, utilisation: [cpu, None, memory], unfit, ..LoadReport::default() })
    }

    fn facts(&self) -> PageFacts {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Config;

    fn node(lines: &str) -> NodePage {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ p: {{ endpoints: [{{ url: http://a:1 }}], load: {{ node: {{ {lines} }} }} }} }}"
        );
        let load = Config::parse(&text, "t.yaml", &|_| None).unwrap().0.pools.remove(0).load;
        NodePage::new(&load.unwrap().node.unwrap())
    }

    /// Two processors, each so many seconds at work, idle and waiting for a disk; memory of 16 GB of which so much is available.
    fn page(work: f64, idle: f64, disk: f64, available: f64) -> String {
        let mut page =
            format!("{MEMORY} 1.6e+10\n{AVAILABLE} {available:e}\nnode_memory_MemFree_bytes 5\n# TYPE {CPU} counter\n");
        for cpu in 0..2 {
            for (mode, seconds) in [("user", work), ("idle", idle), ("iowait", disk), ("steal", 0.0)] {
                page += &format!("{CPU}{{cpu=\"{cpu}\",mode=\"{mode}\"}} {seconds}\n");
            }
        }
        page + "node_cpu_guest_seconds_total{cpu=\"0\",mode=\"user\"} 99\n"
    }

    fn read(node: &mut NodePage, page: &str) -> Result<(Option<f64>, Option<f64>), String> {
        let report = node.read(Instant::from_nanos(1), page.as_bytes()).map_err(|miss| miss.to_string())?;
        assert_eq!((report.load, report.utilisation[1]), (None, None));
        Ok((report.utilisation[0], report.utilisation[2]))
    }

    #[test]
    fn processors_are_as_busy_as_between_two_pages_and_the_first_tells_nothing_of_them() {
        let mut n = node("");
        assert_eq!(read(&mut n, &page(100.0, 900.0, 5.0, 4e9)), Ok((None, Some(0.75))));
        assert_eq!(
            read(&mut n, &page(103.0, 902.0, 8.0, 8e9)),
            Ok((Some(0.375), Some(0.5))),
            "waiting for a disk is idle"
        );
        assert_eq!(n.facts().present, ["cpu", "memory"]);
        assert_eq!(
            read(&mut n, &page(103.0, 902.0, 8.0, 8e9)),
            Ok((None, Some(0.5))),
            "the same page again: no time has passed"
        );
    }

    #[test]
    fn another_boot_a_processor_less_and_corrected_idle_time_begin_anew() {
        let mut n = node("");
        for (next, cpu) in [
            (page(100.0, 900.0, 0.0, 8e9), None),
            (page(1.0, 2.0, 0.0, 8e9), None),
            (page(2.0, 3.0, 0.0, 8e9), Some(0.5)),
            (page(3.0, 2.9, 0.0, 8e9), None),
            (
                page(3.0, 3.9, 0.0, 8e9)
                    .replace("cpu=\"1\"", "x=\"1\"")
                    .replace("x=\"1\",mode=\"idle\"", "x=\"1\",mode=\"nice\""),
                None,
            ),
        ] {
            assert_eq!(read(&mut n, &next).unwrap().0, cpu, "{next}");
        }
    }

    #[test]
    fn what_the_page_lacks_is_missing_and_never_zero() {
        let mut n = node("");
        assert_eq!(read(&mut n, &format!("{MEMORY} 8\n{AVAILABLE} 2\n")), Ok((None, Some(0.75))));
        assert_eq!((n.facts().present, n.facts().missing), (vec!["memory"], vec!["cpu"]));
        let cpus: String =
            page(1.0, 1.0, 0.0, 1.0).lines().filter(|l| l.starts_with(CPU)).map(|l| format!("{l}\n")).collect();
        assert_eq!(read(&mut n, &cpus), Err("there is no earlier page to compare with yet".to_owned()));
        assert_eq!(read(&mut n, &cpus.replace(" 1\n", " 2\n")), Ok((Some(0.5), None)));
        assert!(read(&mut n, "process_cpu_seconds_total 3\n").is_err_and(|why| why.contains("node_")));
        assert_eq!(
            read(&mut n, &format!("{MEMORY} 8\n{AVAILABLE} 9\n")),
            Err("impossible: used memory -0.125".to_owned())
        );
        assert!(read(&mut n, &format!("{CPU}{{mode=\"idle\"}} NaN\n")).is_err_and(|why| why.contains("impossible")));
    }

    #[test]
    fn gates_are_off_unless_asked_for_and_a_busy_node_has_to_calm_down_a_little() {
        let mut ungated = node("");
        read(&mut ungated, &page(0.0, 0.0, 0.0, 1.0)).unwrap();
        read(&mut ungated, &page(10.0, 0.0, 0.0, 1.0)).unwrap();
        assert_eq!(ungated.facts().gate, None);
        let mut n = node("max_cpu: 90%, max_memory: 95%");
        let (mut work, mut idle) = (0.0, 0.0);
        let mut gate = |busy: f64, available: f64| {
            (work, idle) = (work + busy, idle + 1.0 - busy);
            let report = n.read(Instant::from_nanos(1), page(work, idle, 0.0, available).as_bytes()).unwrap();
            (report.unfit, n.facts().gate.unwrap_or_default())
        };
        gate(0.5, 8e9);
        assert_eq!(gate(0.89, 8e9), (None, String::new()));
        assert_eq!(gate(0.95, 8e9), (Some(Unfit::NodeCpu), "the node's processors are busy: 95.0 %".to_owned()));
        assert_eq!(gate(0.86, 8e9).0, Some(Unfit::NodeCpu));
        assert_eq!(gate(0.84, 8e9).0, None);
        assert_eq!(gate(0.1, 1.6e8), (Some(Unfit::NodeMemory), "the node is out of memory: 99.0 % used".to_owned()));
    }
}
