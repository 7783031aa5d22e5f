//! Plain values: numbers, switches and sizes.

use crate::types::Bytes;

/// `0` or `1`.
pub(super) fn switch(text: &str) -> Option<bool> {
    word(text, &[("0", false), ("1", true)])
}

/// The value that `text` stands for among `words`.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
}

/// Decimal digits, nothing else.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Decimal digits and one of K, M, G (powers of 1024), or none of them.
pub(super) fn size(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number::<usize>(digits)?.checked_mul(1 << shift).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("48"), Some(Bytes(48)));
        assert_eq!(size("8k"), Some(Bytes(8192)));
        assert_eq!(size("3M"), Some(Bytes(3 << 20)));
        assert_eq!(size("1G"), Some(Bytes(1 << 30)));
        for wrong in ["", "K", "8KB", "+8", "-8", "1.5K", "é", "18446744073709551615K"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn words_are_whole_and_as_listed() {
        let words = [("auto", 1), ("late", 2)];
        assert_eq!(["auto", "late"].map(|text| word(text, &words)), [Some(1), Some(2)]);
        assert_eq!(["Auto", "lat", "later", ""].map(|text| word(text, &words)), [None; 4]);
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(number::<u32>("12"), Some(12));
        assert_eq!(number::<u32>("+12"), None);
        assert_eq!(number::<u32>(""), None);
        assert_eq!(number::<u32>("4294967296"), None);
    }
}
