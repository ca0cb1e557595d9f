//! The events of engines' prefix caches: MessagePack, as vLLM and SGLang write them.
//!
//! A batch is `[time, events, rank]`, an event `["BlockStored", hashes, parent, tokens, block size, adapter, medium, ...]`; newer vLLM writes
//! both as maps with these names. Nothing but numbers of blocks is read, and the tokens of prompts are skipped where they lie, so that a batch of
//! a megabyte costs no memory. Fields that are not known are left alone: every version has had more of them than the one before.
//!
//! Models with several kinds of attention keep every token once per group of layers: the first group of full attention counts, as the others
//! keep less. Media are added: what moved to the memory of the host is still no work to compute.
//! Source: vLLM's `distributed/kv_events.py`, SGLang's `disaggregation/kv_events.py`.

use rmp::Marker;
use rmp::decode::{RmpRead, read_marker};
use std::collections::BTreeMap;

/// Tokens of a block beyond which it is none.
const MOST_TOKENS: u64 = 1 << 20;
/// Groups whose size of a block is remembered.
const MOST_GROUPS: usize = 64;
/// Kinds of layers that keep every token.
const FULL: [&[u8]; 3] = [b"full_attention", b"mla_attention", b"sink_full_attention"];

/// What a batch comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Whether the whole cache was emptied.
    pub(crate) cleared: bool,
    /// Tokens stored and removed, after it was emptied.
    pub(crate) stored_tokens: u64,
    pub(crate) removed_tokens: u64,
}

/// A payload that is no batch of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread;

/// What of one publisher's events has to be remembered to read the next.
#[derive(Debug, Default)]
pub(crate) struct CacheFormat {
    /// Tokens of a block by group, as removals do not say.
    block_tokens: BTreeMap<Option<u64>, u64>,
    /// The group that counts, where there are groups.
    counted: Option<u64>,
}

impl CacheFormat {
    /// Reads a batch. O(its bytes).
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn read(&mut self, payload: &[u8]) -> Result<Changes, Unread> {
        let mut rest = payload;
        let (length, is_map) = container(&mut rest)?;
        let mut changes = Changes::default();
        for place in 0..length {
            let is_events = if is_map { string(&mut rest)? == b"events" } else { place == 1 };
            if !is_events {
                skip(&mut rest)?;
                continue;
            }
            let (events, false) = container(&mut rest)? else { return Err(Unread) };
            for _ in 0..events {
                let event = Event::read(&mut rest)?;
                self.add(&event, &mut changes);
            }
            return Ok(changes);
        }
        Err(Unread)
    }

    fn add(&mut self, event: &Event<'_>, changes: &mut Changes) {
        match event.kind {
            b"AllBlocksCleared" => *changes = Changes { cleared: true, ..Changes::default() },
            b"BlockStored" => {
                let is_full = event.layers.is_none_or(|kind| FULL.contains(&kind));
                if let Some(group) = event.group.filter(|_| is_full) {
                    self.counted.get_or_insert(group);
                }
                if event.group.is_some() && self.counted != event.group {
                    return;
                }
                let (Some(tokens), Some(hashes)) = (event.block_tokens, event.hashes) else { return };
                if self.block_tokens.len() < MOST_GROUPS || self.block_tokens.contains_key(&event.group) {
                    self.block_tokens.insert(event.group, tokens);
                }
                changes.stored_tokens = changes.stored_tokens.saturating_add(tokens.saturating_mul(hashes));
            }
            b"BlockRemoved" => {
                // Of a group whose blocks were never seen nothing was counted either.
                let tokens = self.block_tokens.get(&event.group).copied().unwrap_or(0);
                let removed = tokens.saturating_mul(event.hashes.unwrap_or(0));
                changes.removed_tokens = changes.removed_tokens.saturating_add(removed);
            }
            _ => {}
        }
    }
}

/// The part of an event that counts.
#[derive(Debug, Default)]
struct Event<'p> {
    kind: &'p [u8],
    /// Blocks it is about.
    hashes: Option<u64>,
    block_tokens: Option<u64>,
    group: Option<u64>,
    /// The kind of attention of its group.
    layers: Option<&'p [u8]>,
}

/// Names of an event's fields in the order of the list form, the tag first.
const STORED: [&[u8]; 11] = [
    b"type",
    b"block_hashes",
    b"parent_block_hash",
    b"token_ids",
    b"block_size",
    b"lora_id",
    b"medium",
    b"lora_name",
    b"extra_keys",
    b"group_idx",
    b"kv_cache_spec_kind",
];
const REMOVED: [&[u8]; 4] = [b"type", b"block_hashes", b"medium", b"group_idx"];

impl<'p> Event<'p> {
    fn is_known(&self) -> bool {
        matches!(self.kind, b"BlockStored" | b"BlockRemoved")
    }

    fn read(rest: &mut &'p [u8]) -> Result<Self, Unread> {
        let (length, is_map) = container(rest)?;
        let mut event = Self::default();
        for place in 0..length as usize {
            let name = if is_map {
                string(rest)?
            } else {
                let names: &[&[u8]] = match event.kind {
                    b"BlockRemoved" => &REMOVED,
                    b"BlockStored" => &STORED,
                    _ => &[b"type"],
                };
                names.get(place).copied().unwrap_or_default()
            };
            // The tag comes first; fields of events that are not known are nobody's business.
            let name = if name == b"type" || event.is_known() { name } else { b"" };
            match name {
                b"type" => event.kind = string(rest)?,
                b"block_hashes" => {
                    let (hashes, false) = container(rest)? else { return Err(Unread) };
                    for _ in 0..hashes {
                        skip(rest)?;
                    }
                    event.hashes = Some(u64::from(hashes));
                }
                b"block_size" => {
                    event.block_tokens = integer(rest)?;
                    if event.block_tokens.is_some_and(|tokens| tokens > MOST_TOKENS) {
                        return Err(Unread);
                    }
                }
                b"group_idx" => event.group = integer(rest)?,
                b"kv_cache_spec_kind" => event.layers = text_or_none(rest)?,
                _ => skip(rest)?,
            }
        }
        if event.kind.is_empty() { Err(Unread) } else { Ok(event) }
    }
}

/// The length of the list or map that comes next, and whether it is a map.
fn container(rest: &mut &[u8]) -> Result<(u32, bool), Unread> {
    let marker = read_marker(rest).map_err(|_| Unread)?;
    Ok(match marker {
        Marker::FixArray(n) => (u32::from(n), false),
        Marker::Array16 => (u32::from(rest.read_data_u16().map_err(|_| Unread)?), false),
        Marker::Array32 => (rest.read_data_u32().map_err(|_| Unread)?, false),
        Marker::FixMap(n) => (u32::from(n), true),
        Marker::Map16 => (u32::from(rest.read_data_u16().map_err(|_| Unread)?), true),
        Marker::Map32 => (rest.read_data_u32().map_err(|_| Unread)?, true),
        _ => return Err(Unread),
    })
}

/// The text that comes next.
fn string<'p>(rest: &mut &'p [u8]) -> Result<&'p [u8], Unread> {
    text_or_none(rest)?.ok_or(Unread)
}

/// The text that comes next; `None` for anything else, which is skipped.
fn text_or_none<'p>(rest: &mut &'p [u8]) -> Result<Option<&'p [u8]>, Unread> {
    let mut after = *rest;
    let length = match read_marker(&mut after).map_err(|_| Unread)? {
        Marker::FixStr(n) => usize::from(n),
        Marker::Str8 => usize::from(after.read_data_u8().map_err(|_| Unread)?),
        Marker::Str16 => usize::from(after.read_data_u16().map_err(|_| Unread)?),
        _ => return skip(rest).map(|()| None),
    };
    let (text, after) = after.split_at_checked(length).ok_or(Unread)?;
    *rest = after;
    Ok(Some(text))
}

/// The number that comes next; `None` for anything else, which is skipped.
fn integer(rest: &mut &[u8]) -> Result<Option<u64>, Unread> {
    let mut after = *rest;
    match rmp::decode::read_int::<u64, _>(&mut after) {
        Ok(number) => {
            *rest = after;
            Ok(Some(number))
        }
        Err(_) => skip(rest).map(|()| None),
    }
}

/// Leaves out one value with all that is in it, without recursion: every value takes a byte at least, so this ends with the payload.
fn skip(rest: &mut &[u8]) -> Result<(), Unread> {
    let mut left = 1u64;
    while left > 0 {
        left -= 1;
        let marker = read_marker(rest).map_err(|_| Unread)?;
        let mut length = |bytes: usize| -> Result<usize, Unread> {
            let (head, after) = rest.split_at_checked(bytes).ok_or(Unread)?;
            *rest = after;
            Ok(head.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
        };
        let bytes = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => 0,
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::FixExt4 => 5,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::FixStr(n) => usize::from(n),
            Marker::Str8 | Marker::Bin8 => length(1)?,
            Marker::Str16 | Marker::Bin16 => length(2)?,
            Marker::Str32 | Marker::Bin32 => length(4)?,
            Marker::Ext8 => length(1)? + 1,
            Marker::Ext16 => length(2)? + 1,
            Marker::Ext32 => length(4)? + 1,
            Marker::FixArray(n) => {
                left += u64::from(n);
                0
            }
            Marker::Array16 => {
                left += length(2)? as u64;
                0
            }
            Marker::Array32 => {
                left += length(4)? as u64;
                0
            }
            Marker::FixMap(n) => {
                left += 2 * u64::from(n);
                0
            }
            Marker::Map16 => {
                left += 2 * length(2)? as u64;
                0
            }
            Marker::Map32 => {
                left += 2 * length(4)? as u64;
                0
            }
            Marker::Reserved => return Err(Unread),
        };
        *rest = rest.get(bytes..).ok_or(Unread)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rng::Rng;

    /// What Python's msgspec makes of vLLM's structs, as lists and as maps: two blocks of two tokens stored (hashes of bytes and of an
    /// integer), one removed, all cleared; group 1 of full attention, rank 3.
    const LISTS: &str = "93cb3ff8000000000000939bab426c6f636b53746f72656492c4026162cf8000000000000005c09401cd012cce000111700402c0\
        a3475055c092c092a26d6d0301ae66756c6c5f617474656e74696f6e94ac426c6f636b52656d6f76656491c4026162a34750550191b0416c6c426c6f636b73\
        436c656172656403";
    const MAPS: &str = "83a27473cb3ff8000000000000a66576656e7473938ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392c4026162\
        cf8000000000000005b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401cd012cce0001117004aa626c6f636b5f73697a6502a76c6f\
        72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797392c092a26d6d03a967726f75705f69647801b26b765f636163\
        68655f737065635f6b696e64ae66756c6c5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391c4026162\
        a66d656469756da3475055a967726f75705f6964780181a474797065b0416c6c426c6f636b73436c6561726564b2646174615f706172616c6c656c5f72616e6b\
        03";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    /// A batch of events in the form of lists.
    fn batch(events: &[Vec<u8>]) -> Vec<u8> {
        let mut batch = vec![0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90 + events.len() as u8];
        batch.extend(events.concat());
        batch
    }

    fn text(s: &str) -> Vec<u8> {
        [&[0xa0 + s.len() as u8][..], s.as_bytes()].concat()
    }

    /// `blocks` blocks of `size` tokens, as SGLang's older versions write them, with `more` behind.
    fn stored(blocks: u8, size: u8, more: &[u8], fields: u8) -> Vec<u8> {
        let hashes = [vec![0x90 + blocks], vec![1; usize::from(blocks)]].concat();
        [vec![0x96 + fields], text("BlockStored"), hashes, vec![0xc0, 0x90, size, 0xc0], more.to_vec()].concat()
    }

    fn removed(blocks: u8) -> Vec<u8> {
        [vec![0x92], text("BlockRemoved"), vec![0x90 + blocks], vec![1; usize::from(blocks)]].concat()
    }

    #[test]
    fn what_engines_send_is_read_in_both_forms() {
        for whole in [LISTS, MAPS] {
            let payload = bytes(whole);
            let mut format = CacheFormat::default();
            assert_eq!(
                format.read(&payload),
                Ok(Changes { cleared: true, ..Changes::default() }),
                "the last word counts"
            );
            assert_eq!((format.counted, format.block_tokens.get(&Some(1))), (Some(1), Some(&2)));
            // Without the last event: what was stored and removed.
            let cut = if whole == MAPS { payload.iter().position(|b| *b == 0x93).unwrap() } else { 10 };
            let mut two = payload.clone();
            two[cut] = 0x92;
            let changes = CacheFormat::default().read(&two).unwrap();
            assert_eq!(changes, Changes { cleared: false, stored_tokens: 4, removed_tokens: 2 }, "{whole}");
        }
    }

    #[test]
    fn what_was_before_the_cache_was_cleared_counts_for_nothing() {
        let mut format = CacheFormat::default();
        let clear = [vec![0x91], text("AllBlocksCleared")].concat();
        let changes = format.read(&batch(&[stored(3, 16, &[], 0), clear, stored(2, 16, &[], 0), removed(1)])).unwrap();
        assert_eq!(changes, Changes { cleared: true, stored_tokens: 32, removed_tokens: 16 });
    }

    #[test]
    fn removals_are_as_large_as_what_was_stored() {
        let mut format = CacheFormat::default();
        assert_eq!(format.read(&batch(&[removed(4)])), Ok(Changes::default()), "of blocks nobody saw");
        format.read(&batch(&[stored(1, 64, &[], 0)])).unwrap();
        assert_eq!(format.read(&batch(&[removed(4)])).unwrap().removed_tokens, 256);
    }

    #[test]
    fn of_several_groups_of_layers_the_first_of_full_attention_counts() {
        let of_group = |group: u8, kind: &str| {
            stored(2, 16, &[vec![0xa3], b"CPU".to_vec(), vec![0xc0, 0xc0, group], text(kind)].concat(), 5)
        };
        let mut format = CacheFormat::default();
        let events = [of_group(0, "sliding_window"), of_group(1, "full_attention"), of_group(2, "full_attention")];
        assert_eq!(format.read(&batch(&events)).unwrap().stored_tokens, 32);
        let of = |group: u8| [vec![0x94], text("BlockRemoved"), vec![0x91, 1, 0xc0, group]].concat();
        assert_eq!(format.read(&batch(&[of(0), of(1), of(2)])).unwrap().removed_tokens, 16);
    }

    #[test]
    fn events_and_fields_that_nobody_knows_yet_are_left_alone() {
        let future = [vec![0x93], text("BlockMoved"), vec![0x81, 0xc0, 0x92, 1, 2, 0xc3]].concat();
        let mut longer = stored(1, 16, &[], 0);
        longer[0] = 0x9f;
        longer.extend([0xc0; 9]);
        assert_eq!(CacheFormat::default().read(&batch(&[future, longer])).unwrap().stored_tokens, 16);
    }

    #[test]
    fn whatever_comes_is_read_or_not_and_never_more() {
        let mut rng = Rng::new(5);
        for n in 0..40_000 {
            let mut payload = bytes(if n % 2 == 0 { LISTS } else { MAPS });
            for _ in 0..=rng.below(4) {
                let at = rng.below(payload.len());
                payload[at] = rng.below(256) as u8;
            }
            payload.truncate(1 + rng.below(payload.len() + 40).min(payload.len() - 1));
            let mut format = CacheFormat::default();
            let _ = format.read(&payload);
            assert!(format.block_tokens.len() <= MOST_GROUPS);
        }
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_unread_at_any_place() {
        for whole in [LISTS, MAPS] {
            let payload = bytes(whole);
            let events_end = payload.len() - if whole == LISTS { 1 } else { 20 };
            for end in 0..events_end {
                assert_eq!(CacheFormat::default().read(&payload[..end]), Err(Unread), "{end} of {whole}");
            }
        }
        for payload in [
            &b"{\"events\": []}"[..],
            b"\xc1",
            b"\x91\x90",
            b"\xdd\xff\xff\xff\xff",
            b"\x92\x00\xdf\xff\xff\xff\xff",
            b"\x92\xc7",
        ] {
            assert_eq!(CacheFormat::default().read(payload), Err(Unread), "{payload:?}");
        }
    }

    #[test]
    fn a_block_of_more_tokens_than_any_prompt_has_is_none() {
        let huge = [&[0xcf][..], &1_000_000_000_000u64.to_be_bytes()].concat();
        let hashes = vec![0x91, 1];
        let event = [vec![0x96], text("BlockStored"), hashes, vec![0xc0, 0x90], huge, vec![0xc0]].concat();
        assert_eq!(CacheFormat::default().read(&batch(&[event])), Err(Unread));
    }
}
