//! How much a server may send.
//!
//! The driver keeps a message until all of it is there, however long the server says it is, every
//! setting that the server reports, and all rows of an answer. So a server could use up our memory; this
//! follows the messages as their bytes pass, and breaks off in time.

/// What the longest message may be, its length included. The longest that has a use is a row of a
/// table, or an error with all that belongs to it.
const LONGEST_MESSAGE: usize = 4 << 20;

/// What may come in all before the server is ready for statements, and later without being asked for:
/// settings, which the driver keeps all of, and before that notices and the login's messages.
const MOST_UNASKED: usize = 1 << 20;

/// What the rows of one answer may come to; some million locks do.
const MOST_ROWS: usize = 256 << 20;

/// What a row costs beside its bytes.
const ROW: usize = 128;

/// The type byte, and the length, which counts itself.
const HEAD: usize = 5;

/// Follows the messages of one server.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    head: [u8; HEAD],
    /// How much of the head is there.
    known: usize,
    /// How much of the body is still to come.
    body: usize,
    /// What came without being asked for.
    unasked: usize,
    /// The rows of the answer that is under way.
    rows: usize,
    /// The server takes statements.
    ready: bool,
}

impl Bounds {
    /// Lets the next bytes pass, or says why not.
    pub(super) fn observe(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        loop {
            let skipped = bytes.len().min(self.body);
            self.body -= skipped;
            bytes = &bytes[skipped..];
            let taken = bytes.len().min(HEAD - self.known);
            if taken == 0 {
                return Ok(());
            }
            let (head, rest) = bytes.split_at(taken);
            self.head[self.known..][..taken].copy_from_slice(head);
            self.known += taken;
            bytes = rest;
            if self.known == HEAD {
                self.begin()?;
                self.known = 0;
            }
        }
    }

    /// A message begins, whose head is known.
    fn begin(&mut self) -> Result<(), String> {
        let [kind, length @ ..] = self.head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST_MESSAGE {
            return Err(format!(
                "the server sent a message of {length} bytes, and {LONGEST_MESSAGE} are the most that is taken"
            ));
        }
        if !self.ready || kind == b'S' {
            self.unasked += length;
        }
        if self.unasked > MOST_UNASKED {
            return Err(format!(
                "the server sent more than {MOST_UNASKED} bytes that nobody has asked for"
            ));
        }
        match kind {
            b'D' => self.rows += length + ROW,
            b'Z' => (self.rows, self.ready) = (0, true),
            _ => {}
        }
        if self.rows > MOST_ROWS {
            return Err(format!(
                "the server sent more rows than {MOST_ROWS} bytes hold"
            ));
        }
        self.body = length.saturating_sub(HEAD - 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: usize) -> Vec<u8> {
        let length = u32::try_from(4 + body).unwrap();
        let mut message = vec![kind];
        message.extend(length.to_be_bytes());
        message.resize(HEAD + body, b'Z');
        message
    }

    fn head(kind: u8, length: u32) -> Vec<u8> {
        [&[kind][..], &length.to_be_bytes()].concat()
    }

    fn login() -> Vec<u8> {
        [message(b'R', 4), message(b'S', 20), message(b'Z', 1)].concat()
    }

    /// What becomes of the bytes, in two pieces, wherever the cut is.
    #[track_caller]
    fn verdict(bytes: &[u8]) -> Result<(), String> {
        let whole = Bounds::default().observe(bytes);
        let cuts = (0..bytes.len().min(64)).chain(bytes.len().saturating_sub(64)..bytes.len());
        for cut in cuts {
            let mut bounds = Bounds::default();
            let (first, second) = bytes.split_at(cut);
            let pieces = bounds.observe(first).and_then(|()| bounds.observe(second));
            assert_eq!(pieces, whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn what_servers_send_passes_however_the_bytes_arrive() {
        let row = message(b'D', LONGEST_MESSAGE - 4);
        let answers = message(b'D', 100).repeat(2 * MOST_UNASKED / 100);
        let table = [
            Vec::new(),
            login(),
            [login(), message(b'1', 0), message(b'Z', 1)].concat(),
            [login(), row.clone(), row, message(b'Z', 1)].concat(),
            [login(), answers].concat(),
            message(b'N', MOST_UNASKED - 4),
            // Too short to be one; the driver says so.
            head(b'R', 0),
        ];
        for bytes in table {
            assert_eq!(verdict(&bytes), Ok(()));
        }
        let mut bounds = Bounds::default();
        for byte in login().repeat(3) {
            assert_eq!(bounds.observe(&[byte]), Ok(()));
        }
        assert_eq!((bounds.known, bounds.body, bounds.ready), (0, 0, true));
    }

    #[test]
    fn a_message_that_is_too_long_ends_with_its_head() {
        let longer = u32::try_from(LONGEST_MESSAGE).unwrap() + 1;
        for length in [longer, 0x7fff_ffff, 0xffff_fffb] {
            let expected = format!("a message of {length} bytes");
            for kind in [b'D', b'R', b'E', 0xff] {
                for before in [Vec::new(), login()] {
                    let bytes = [before, head(kind, length)].concat();
                    assert!(verdict(&bytes).unwrap_err().contains(&expected));
                    assert_eq!(verdict(&bytes[..bytes.len() - 1]), Ok(()));
                }
            }
        }
    }

    #[test]
    fn an_answer_without_end_has_an_end() {
        for row in [message(b'D', 2), message(b'D', 1 << 20)] {
            let mut bounds = Bounds::default();
            bounds.observe(&login()).unwrap();
            let rows = MOST_ROWS / (row.len() - 1 + ROW);
            for _answer in 0..2 {
                for _ in 0..rows {
                    bounds.observe(&row).unwrap();
                }
                bounds.observe(&message(b'Z', 1)).unwrap();
            }
            let refused = (0..=rows).find_map(|_| bounds.observe(&row).err());
            assert!(refused.unwrap().contains("more rows"));
        }
    }

    #[test]
    fn what_nobody_has_asked_for_has_an_end() {
        let half = MOST_UNASKED / 2 + 1 - 4;
        let refused = [
            [message(b'S', half), message(b'S', half)].concat(),
            [message(b'N', half), message(b'R', half), login()].concat(),
            [
                login(),
                message(b'S', half),
                message(b'D', 9),
                message(b'S', half),
            ]
            .concat(),
            message(b'S', 1000).repeat(MOST_UNASKED / 1000),
        ];
        for bytes in refused {
            assert!(
                verdict(&bytes)
                    .unwrap_err()
                    .contains("nobody has asked for")
            );
        }
    }
}
