//! Operations from bytes: what the fuzz target `pool` drives the world with.
#![allow(dead_code, reason = "each driver uses its part")]

use super::{Op, drive};
use crate::driver::{FAILED, secs};
use tidegate_core::outcome::{Failure, Verdict};

/// Most operations of one run.
const MOST: usize = 400;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> f64 {
        const ODD: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 7.0, -0.0, f64::MIN_POSITIVE, 0.95];
        let byte = self.byte();
        if byte < 8 { ODD[usize::from(byte)] } else { f64::from(byte) / 255.0 }
    }

    fn maybe<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.byte().is_multiple_of(2) { None } else { Some(f(self)) }
    }

    fn verdict(&mut self) -> Verdict {
        match self.byte() % 8 {
            0..3 => Verdict::Success,
            3 => FAILED,
            4 => Verdict::Failed(Failure::Truncated),
            5 => Verdict::Cancelled,
            6 => Verdict::ClientError,
            _ => Verdict::Throttled { retry_after: self.maybe(|b| secs(f64::from(b.byte()))) },
        }
    }

    fn op(&mut self) -> Op {
        let (kind, k) = (self.byte() % 23, u32::from(self.byte()));
        match kind {
            0 => Op::Add { weight: self.number(), max: self.maybe(|b| u32::from(b.byte() % 6)) },
            1 => Op::Remove(k),
            2..7 => Op::Admit {
                key: self.maybe(|b| u64::from(b.byte() % 20)),
                tokens: self.maybe(|b| 20 * u32::from(b.byte())),
                retry_of: if k.is_multiple_of(5) { Some(k) } else { None },
                explain: k % 8 == 1,
            },
            7..9 => Op::FirstByte(k),
            9..12 => Op::Settle(k, self.verdict()),
            12 => Op::Late(k),
            13 => Op::Progress(k, u64::from(self.byte())),
            14 => Op::Check(k, self.byte().is_multiple_of(2)),
            15 => Op::Report {
                endpoint: k,
                load: self.maybe(Self::number),
                time_s: self.maybe(Self::number),
                used: self.maybe(Self::number),
                age_ms: 16 * i32::from(self.byte()) - 500,
            },
            16 => Op::Missed(k),
            17 => Op::Drain(k, self.byte().is_multiple_of(2)),
            18 => Op::Weight(k, self.number()),
            19 => Op::Connected(k, u64::from(self.byte() % 4)),
            20 => Op::Probed(k, self.byte().is_multiple_of(2)),
            21 => Op::Leave(k),
            _ => match k % 8 {
                0 => Op::StepBack(64 * u32::from(self.byte())),
                1 => Op::Deadline,
                2 => Op::Pass(400 * u32::from(self.byte())),
                _ => Op::Pass(8 * u32::from(self.byte())),
            },
        }
    }
}

/// Reads a case and its operations from `data`, and drives them.
pub(crate) fn drive_bytes(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (case, flags) = (usize::from(bytes.byte()), bytes.byte());
    let mut ops = Vec::new();
    while !bytes.0.is_empty() && ops.len() < MOST {
        ops.push(bytes.op());
    }
    drive(case, flags, &ops);
}
