use super::*;

/// Returns its parts one read at a time, each bytes or an error.
struct Pieces(Vec<io::Result<Vec<u8>>>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let mut piece = self.0.remove(0)?;
        let rest = piece.split_off(piece.len().min(buffer.len()));
        if !rest.is_empty() {
            self.0.insert(0, Ok(rest));
        }
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

fn reader(pieces: Vec<io::Result<Vec<u8>>>, block: usize, line: usize) -> LineReader {
    let options = LineOptions {
        block_bytes: block,
        line_bytes_max: line,
    };
    LineReader::new("test.jsonl".into(), Box::new(Pieces(pieces)), options)
}

type Numbered = (u64, String);

/// All lines with their numbers, and the numbers of those that were too long.
fn lines(reader: &mut LineReader) -> Result<(Vec<Numbered>, Vec<u64>), ReadError> {
    let (mut lines, mut long) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block()? {
        long.extend(block.bad.map(|bad| bad.line));
        for (line, number) in block
            .bytes
            .split_inclusive(|&b| b == b'\n')
            .zip(block.first_line..)
        {
            lines.push((number, String::from_utf8_lossy(line).into_owned()));
        }
        let count = block.bytes.split_inclusive(|&b| b == b'\n').count();
        reader.count_lines(count as u64);
    }
    Ok((lines, long))
}

#[test]
fn lines_come_out_whole_whatever_the_sizes_of_blocks_and_reads() {
    let text = b"one\ntwo is longer\n\nfour\nlast";
    for block in 4..40 {
        for piece in 1..text.len() {
            let pieces = text.chunks(piece).map(|piece| Ok(piece.to_vec())).collect();
            let (lines, long) = lines(&mut reader(pieces, block, 1000)).unwrap();
            let expected = ["one\n", "two is longer\n", "\n", "four\n", "last"];
            let numbered = (1..).zip(expected.map(String::from)).collect::<Vec<_>>();
            assert_eq!(
                (lines, long),
                (numbered, vec![]),
                "block {block} piece {piece}"
            );
        }
    }
}

#[test]
fn a_line_above_the_limit_is_passed_over_and_counted() {
    let text = b"0123456789\n01234567890\n0123\n01234567890123456789012345678901234567890\nend";
    for piece in 1..text.len() {
        let pieces = text.chunks(piece).map(|piece| Ok(piece.to_vec())).collect();
        let (lines, long) = lines(&mut reader(pieces, 8, 10)).unwrap();
        let expected = [(1, "0123456789\n"), (3, "0123\n"), (5, "end")];
        assert_eq!(
            lines,
            expected.map(|(number, line)| (number, line.to_string()))
        );
        assert_eq!(long, [2, 4], "piece {piece}");
    }
}

#[test]
fn a_last_line_above_the_limit_is_reported_too() {
    let mut reader = reader(vec![Ok(b"ok\n0123456789ABC".to_vec())], 8, 10);
    let (lines, long) = lines(&mut reader).unwrap();
    assert_eq!((lines.len(), long), (1, vec![2]));
}

#[test]
fn memory_does_not_grow_with_a_line_that_is_too_long() {
    let pieces = (0..1000).map(|_| Ok(vec![b'x'; 1000])).collect();
    let mut reader = reader(pieces, 64, 5000);
    assert_eq!(lines(&mut reader).unwrap().1, [1]);
    assert!(reader.buffer.len() <= 5001);
}

#[test]
fn an_empty_file_has_no_blocks() {
    let mut reader = reader(Vec::new(), 64, 100);
    assert!(reader.next_block().unwrap().is_none());
    assert!(reader.next_block().unwrap().is_none());
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let bytes = b"\xef\xbb\xbf{}\n";
    for piece in 1..6 {
        let pieces = bytes
            .chunks(piece)
            .map(|piece| Ok(piece.to_vec()))
            .collect();
        let (lines, _) = lines(&mut reader(pieces, 64, 100)).unwrap();
        assert_eq!(lines, [(1, "{}\n".to_string())]);
    }
}

#[test]
fn an_error_comes_after_the_whole_lines_before_it_with_its_place() {
    let failure = || Err(io::Error::other("the disk is on fire"));
    let interrupted = Err(io::Error::from(io::ErrorKind::Interrupted));
    let pieces = vec![
        Ok(b"one\n".to_vec()),
        interrupted,
        Ok(b"two\nthr".to_vec()),
        failure(),
    ];
    let mut reader = reader(pieces, 64, 1000);
    assert_eq!(reader.next_block().unwrap().unwrap().bytes, b"one\n");
    assert_eq!(reader.next_block().unwrap().unwrap().bytes, b"two\n");
    let error = reader.next_block().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read test.jsonl at byte 11: the disk is on fire"
    );
    assert!(reader.next_block().unwrap().is_none());
}
