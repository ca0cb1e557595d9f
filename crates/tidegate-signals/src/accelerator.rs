//! The GPUs below an engine, by the names of NVIDIA's DCGM exporter.
//!
//! Use alone says nothing of health: a kernel that hangs shows 100 % of it. So what takes an endpoint out is heat, memory and the XIDs that
//! NVIDIA's table answers with a reset or a new start of the machine; those that a program of its own caused (such as 13, 31 and 43) never do.
//! While one of them holds, the endpoint is told as unfit and gets nothing new, under any policy. Memory is not told as use: engines take
//! theirs at the start. A number that no GPU can have, such as those by which DCGM says that it does not know, fails the page and is named.

use crate::metric::{Sample, samples};
use crate::miss::Miss;
use crate::poll::{LoadPage, PageFacts};
use tidegate_config::AcceleratorSource;
use tidegate_core::load::{LoadReport, Unfit};
use tidegate_core::time::Instant;

/// Busy share of the time, 0..1; where profiling is on.
const ACTIVE: &str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE";
/// The same in percent, coarser.
const BUSY: &str = "DCGM_FI_DEV_GPU_UTIL";
/// Degrees Celsius.
const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP";
/// MiB.
const MEMORY_USED: &str = "DCGM_FI_DEV_FB_USED";
const MEMORY_FREE: &str = "DCGM_FI_DEV_FB_FREE";
/// The last XID, 0 if there was none.
const XID: &str = "DCGM_FI_DEV_XID_ERRORS";
/// XIDs after which a GPU has to be reset: uncorrectable memory, NVLink, off the bus, uncontained memory, its own processor.
const NEEDS_RESET: [u32; 7] = [48, 64, 74, 79, 95, 119, 120];
/// Degrees that a GPU can have.
const DEGREES: std::ops::RangeInclusive<f64> = -60.0..=200.0;
/// Degrees by which a GPU has to cool down before it counts as cool.
const COOLER: f64 = 3.0;

/// The exporter's page, for one endpoint.
#[derive(Debug)]
pub(crate) struct AcceleratorPage {
    source: AcceleratorSource,
    gpus: Vec<String>,
    is_hot: bool,
    facts: PageFacts,
}

impl AcceleratorPage {
    /// `gpus` are the endpoint's, by index or UUID; empty: all on the page.
    pub(crate) fn new(source: &AcceleratorSource, gpus: &[String]) -> Self {
        Self { source: source.clone(), gpus: gpus.to_vec(), is_hot: false, facts: PageFacts::default() }
    }

    fn is_mine(&self, sample: &Sample<'_>) -> bool {
        let called = |label| sample.label(label).is_some_and(|v| self.gpus.iter().any(|g| g == v));
        self.gpus.is_empty() || called("gpu") || called("UUID")
    }

    /// The values of `name`, of this endpoint's GPUs.
    fn values<'p>(&self, page: &'p str, name: &str) -> Vec<(String, f64, Sample<'p>)> {
        let all = samples(page, name).filter(|s| self.is_mine(s));
        all.map(|s| (s.label("gpu").unwrap_or("?").to_owned(), s.value, s)).collect()
    }

    fn highest(&self, page: &str, name: &str) -> Option<(String, f64)> {
        let all = self.values(page, name).into_iter().map(|(gpu, value, _)| (gpu, value));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The GPU whose memory is fullest, and its used share.
    fn fullest(&self, page: &str) -> Option<(String, f64)> {
        let free = self.values(page, MEMORY_FREE);
        let shares = self.values(page, MEMORY_USED).into_iter().filter_map(|(gpu, used, sample)| {
            let same = |s: &Sample<'_>| ["gpu", "UUID"].iter().all(|l| s.label(l) == sample.label(l));
            let (_, free, _) = free.iter().find(|(_, _, s)| same(s))?;
            (used + free > 0.0).then(|| (gpu, used / (used + free)))
        });
        shares.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Why the endpoint should get nothing new.
    fn gate(
        &mut self,
        page: &str,
        temperature: Option<&(String, f64)>,
        memory: Option<&(String, f64)>,
    ) -> Option<(Unfit, String)> {
        let broken =
            self.values(page, XID).into_iter().find(|(_, xid, _)| NEEDS_RESET.iter().any(|n| f64::from(*n) == *xid));
        if let Some((gpu, xid, _)) = broken.filter(|_| self.source.gates_xid) {
            return Some((Unfit::GpuBroken, format!("GPU {gpu} has XID {xid}: it needs a reset")));
        }
        let bound = self.source.max_temperature - if self.is_hot { COOLER } else { 0.0 };
        let hot = temperature.filter(|(_, degrees)| *degrees >= bound);
        self.is_hot = hot.is_some();
        if let Some((gpu, degrees)) = hot {
            return Some((Unfit::GpuTooHot, format!("GPU {gpu} is too hot: {degrees} degrees")));
        }
        let (gpu, used) = memory.filter(|(_, used)| *used >= self.source.max_memory)?;
        Some((Unfit::GpuMemory, format!("GPU {gpu} is out of memory: {:.1} % used", used * 100.0)))
    }

    /// A number that no GPU can have.
    fn impossible(&self, page: &str) -> Option<Miss> {
        let amount = |v: f64| v >= 0.0 && v.is_finite();
        let checks: [(&str, &dyn Fn(f64) -> bool); 6] = [
            (ACTIVE, &|v| (0.0..=1.0).contains(&v)),
            (BUSY, &|v| (0.0..=100.0).contains(&v)),
            (TEMPERATURE, &|v| DEGREES.contains(&v)),
            (MEMORY_USED, &amount),
            (MEMORY_FREE, &amount),
            (XID, &amount),
        ];
        checks.iter().find_map(|(name, can_be)| {
            let (gpu, value, _) = self.values(page, name).into_iter().find(|(_, value, _)| !can_be(*value))?;
            Some(Miss::Impossible(format!("{name} of GPU {gpu}"), value))
        })
    }
}

impl LoadPage for AcceleratorPage {
    const SOURCE: &'static str = "accelerator";
    const LIMIT_BYTES: usize = 4 << 20;

    fn read(&mut self, sampled_at: Instant, body: &[u8]) -> Result<LoadReport, Miss> {
        let page = String::from_utf8_lossy(body);
        let active = self.highest(&page, ACTIVE).map(|(_, share)| share);
        let busy = active.or_else(|| self.highest(&page, BUSY).map(|(_, percent)| percent / 100.0));
        let (temperature, memory) = (self.highest(&page, TEMPERATURE), self.fullest(&page));
        let has_xid = !self.values(&page, XID).is_empty();
        self.facts = PageFacts { engine: Some("dcgm"), ..PageFacts::default() };
        let named = [
            ("gpu", busy.is_some()),
            ("temperature", temperature.is_some()),
            ("memory", memory.is_some()),
            ("xid", has_xid),
        ];
        named.iter().for_each(|(name, is_there)| self.facts.note(name, *is_there));
        if self.facts.present.is_empty() {
            self.facts.engine = None;
            return Err(Miss::NoSeries(
                "DCGM's names begin with DCGM_FI_; `gpus` of the endpoint must be among the page's",
            ));
        }
        if let Some(impossible) = self.impossible(&page) {
            return Err(impossible);
        }
        let gate = self.gate(&page, temperature.as_ref(), memory.as_ref());
        self.facts.gate = gate.as_ref().map(|(_, why)| why.clone());
        let unfit = gate.map(|(unfit, _)| unfit);
        Ok(LoadReport { sampled_at, utilisation: [None, busy, None], unfit, ..LoadReport::default() })
    }

    fn facts(&self) -> PageFacts {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Config;

    fn source(lines: &str) -> AcceleratorSource {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ p: {{ endpoints: [{{ url: http://a:1 }}], load: {{ accelerator: {{ {lines} }} }} }} }}"
        );
        let load = Config::parse(&text, "t.yaml", &|_| None).unwrap().0.pools.remove(0).load;
        load.unwrap().accelerator.unwrap()
    }

    /// Two GPUs: temperature, used and free memory, XID; use is 0.4 and 0.7.
    fn page(first: (f64, f64, f64, u32), second: (f64, f64, f64, u32)) -> String {
        let mut page = String::new();
        for (gpu, busy, (degrees, used, free, xid)) in [(0, 40, first), (1, 70, second)] {
            let labels = format!("{{gpu=\"{gpu}\",UUID=\"GPU-{gpu}\",modelName=\"H100\"}}");
            for (name, value) in [
                (BUSY, f64::from(busy)),
                (TEMPERATURE, degrees),
                (MEMORY_USED, used),
                (MEMORY_FREE, free),
                (XID, f64::from(xid)),
            ] {
                page += &format!("# TYPE {name} gauge\n{name}{labels} {value}\n");
            }
        }
        page
    }

    const WELL: (f64, f64, f64, u32) = (60.0, 72_000.0, 8_000.0, 0);

    fn read(source: &str, gpus: &[&str], page: &str) -> (Option<Unfit>, [Option<f64>; 3], Option<String>) {
        let gpus: Vec<String> = gpus.iter().map(|g| (*g).to_owned()).collect();
        let mut p = AcceleratorPage::new(&self::source(source), &gpus);
        let report = p.read(Instant::from_nanos(1), page.as_bytes()).unwrap();
        assert_eq!(report.load, None);
        (report.unfit, report.utilisation, p.facts().gate)
    }

    #[test]
    fn gpus_that_are_well_tell_their_use_and_no_load() {
        assert_eq!(read("", &[], &page(WELL, WELL)), (None, [None, Some(0.7), None], None));
        assert_eq!(read("", &["0"], &page(WELL, WELL)).1, [None, Some(0.4), None]);
        assert_eq!(read("", &["GPU-1"], &page(WELL, WELL)).1, [None, Some(0.7), None]);
        let finer = format!("{}{ACTIVE}{{gpu=\"0\"}} 0.93\n", page(WELL, WELL));
        assert_eq!(read("", &[], &finer).1, [None, Some(0.93), None]);
    }

    #[test]
    fn what_is_hot_full_or_broken_is_gated_and_says_why() {
        let why = |source, gpus: &[&str], second| {
            let (unfit, _, gate) = read(source, gpus, &page(WELL, second));
            assert_eq!(unfit.is_some(), gate.is_some());
            gate.unwrap_or_default()
        };
        assert_eq!(read("", &[], &page(WELL, (91.0, 1.0, 1.0, 0))).0, Some(Unfit::GpuTooHot));
        assert_eq!(read("", &[], &page(WELL, (50.0, 79_900.0, 100.0, 0))).0, Some(Unfit::GpuMemory));
        assert_eq!(read("", &[], &page(WELL, (91.0, 1.0, 1.0, 79))).0, Some(Unfit::GpuBroken));
        assert_eq!(why("", &[], (91.0, 1.0, 1.0, 0)), "GPU 1 is too hot: 91 degrees");
        assert_eq!(why("max_temperature: 95", &[], (91.0, 1.0, 1.0, 0)), "");
        assert_eq!(why("", &[], (50.0, 79_900.0, 100.0, 0)), "GPU 1 is out of memory: 99.9 % used");
        assert_eq!(why("", &[], (50.0, 1.0, 1.0, 79)), "GPU 1 has XID 79: it needs a reset");
        assert_eq!(why("xid_errors: ignore", &[], (50.0, 1.0, 1.0, 79)), "");
        assert_eq!(why("", &[], (50.0, 1.0, 1.0, 31)), "", "a program's own fault");
        assert_eq!(why("", &["0"], (99.0, 99.0, 0.0, 79)), "", "another endpoint's GPU");
    }

    #[test]
    fn a_gpu_has_to_cool_down_a_little_before_it_is_used_again() {
        let mut p = AcceleratorPage::new(&source("max_temperature: 90"), &[]);
        let hot = [89.0, 90.0, 88.0, 86.9, 89.0].map(|degrees| {
            p.read(Instant::from_nanos(1), page(WELL, (degrees, 1.0, 1.0, 0)).as_bytes()).unwrap().unfit
        });
        let is = Some(Unfit::GpuTooHot);
        assert_eq!(hot, [None, is, is, None, None]);
    }

    #[test]
    fn a_number_that_no_gpu_can_have_is_named_and_the_page_says_nothing_else() {
        for (second, why) in [
            ((2_147_483_632.0, 1.0, 1.0, 0), "impossible: DCGM_FI_DEV_GPU_TEMP of GPU 1 2147483632"),
            ((50.0, -1.0, 1.0, 0), "impossible: DCGM_FI_DEV_FB_USED of GPU 1 -1"),
            ((50.0, 1.0, f64::NAN, 0), "impossible: DCGM_FI_DEV_FB_FREE of GPU 1 NaN"),
        ] {
            let mut p = AcceleratorPage::new(&source(""), &[]);
            let miss = p.read(Instant::from_nanos(1), page(WELL, second).as_bytes()).unwrap_err();
            assert_eq!((miss.to_string().as_str(), p.facts().gate), (why, None));
        }
        let busy = page(WELL, WELL).replace(" 70\n", " 170\n");
        let mut p = AcceleratorPage::new(&source(""), &["0".to_owned()]);
        assert!(p.read(Instant::from_nanos(1), busy.as_bytes()).is_ok(), "another endpoint's GPU");
    }

    #[test]
    fn a_page_without_its_gpus_is_a_miss() {
        let mut p = AcceleratorPage::new(&source(""), &["7".to_owned()]);
        assert!(p.read(Instant::from_nanos(1), page(WELL, WELL).as_bytes()).is_err());
        assert!(p.read(Instant::from_nanos(1), b"node_load1 3\n").is_err());
    }
}
