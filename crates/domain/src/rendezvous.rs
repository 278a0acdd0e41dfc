//! Chooses one of several places for a key, the same in every process (rendezvous hashing).
//!
//! Each place holds a number of tickets, and each ticket has a hash together with the key. The place with the highest hash wins.
//! So a place gets keys in proportion to its tickets, and a place that is added or removed moves only the keys that it wins or
//! held. The computation uses only integers, so all kinds of machines agree.

/// The place that `key` belongs to, by its index: each is a name and its number of tickets. The order of the places does not
/// matter, their names do. `None` if no place holds a ticket.
pub fn choose<'n>(key: &str, places: impl IntoIterator<Item = (&'n str, u32)>) -> Option<usize> {
    let mut best: Option<((u64, &str), usize)> = None;
    for (index, (name, tickets)) in places.into_iter().enumerate() {
        for ticket in 0..tickets {
            // Equal hashes are decided by the name, so that the order does not matter.
            let bid = (hash(key, name, ticket), name);
            if best.is_none_or(|(highest, _)| bid > highest) {
                best = Some((bid, index));
            }
        }
    }
    best.map(|(_, index)| index)
}

/// FNV-1a over the three, with the finalizer of splitmix64. It must never change: keys would move.
fn hash(key: &str, name: &str, ticket: u32) -> u64 {
    // No text contains this byte, so it separates the texts.
    const END: u8 = 0xff;
    let bytes = key.bytes().chain([END]).chain(name.bytes()).chain([END]).chain(ticket.to_le_bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 20_000;

    fn names(places: &[(&'static str, u32)]) -> Vec<&'static str> {
        (0..KEYS)
            .map(|key| places[choose(&format!("tenant-{key}"), places.iter().copied()).unwrap()].0)
            .collect()
    }

    #[test]
    fn places_get_keys_in_proportion_to_their_tickets() {
        let chosen = names(&[("0", 1), ("1", 2), ("2", 5), ("3", 0)]);
        for (name, percent) in [("0", 12.5), ("1", 25.0), ("2", 62.5), ("3", 0.0)] {
            let count = chosen.iter().filter(|chosen| **chosen == name).count();
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let seen = 100.0 * count as f64 / KEYS as f64;
            assert!((seen - percent).abs() < 1.5, "{name}: {seen} % instead of {percent} %");
        }
    }

    #[test]
    fn a_place_that_is_added_moves_only_the_keys_that_it_gets() {
        let before = names(&[("a", 1), ("b", 1)]);
        let after = names(&[("c", 1), ("b", 1), ("a", 1)]);
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == "c"));
        assert!(after.contains(&"c"));
    }

    #[test]
    fn without_a_ticket_there_is_no_place() {
        assert_eq!(choose("x", []), None);
        assert_eq!(choose("x", [("a", 0)]), None);
    }

    /// The choice decides where a tenant's runs are stored, so no later version may choose differently.
    #[test]
    fn the_choice_never_changes() {
        let chosen: String = names(&[("0", 1), ("1", 1), ("2", 3)])[..40].concat();
        assert_eq!(chosen, "2220222002222101222211021021222222222212");
    }
}
