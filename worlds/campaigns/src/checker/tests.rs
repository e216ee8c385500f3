use super::*;

const SIZE: usize = 64;

struct Disk {
    checker: Checker,
    blocks: Vec<[u8; SIZE]>,
}

impl Disk {
    fn new() -> Self {
        Self { checker: Checker::new(4, SIZE), blocks: vec![[0; SIZE]; 4] }
    }
    fn store(&mut self, id: OperationId, block: u64) {
        stamp::fill(Value(id.0), block, &mut self.blocks[index(block)]);
    }
    fn write(&mut self, block: u64) -> OperationId {
        let id = self.checker.begin(Kind::Write, block..block + 1);
        self.store(id, block);
        self.checker.end(id, End::Done(&[]));
        id
    }
    fn read(&mut self, block: u64) {
        let id = self.checker.begin(Kind::Read, block..block + 1);
        self.end_read(id, block);
    }
    fn end_read(&mut self, id: OperationId, block: u64) {
        self.checker.end(id, End::Done(&self.blocks[index(block)]));
    }
    fn stale(&self) -> bool {
        matches!(self.checker.violations(), [Violation::Stale { .. }])
    }
    fn clean(&self) -> bool {
        self.checker.violations().is_empty()
    }
}

#[test]
fn the_last_write_that_ended_well_must_be_there() {
    let mut disk = Disk::new();
    disk.read(1);
    let old = disk.write(1);
    disk.write(1);
    disk.read(1);
    assert!(disk.clean(), "{:?}", disk.checker.violations());
    disk.store(old, 1);
    disk.read(1);
    assert!(disk.stale());
}

#[test]
fn a_lost_write_is_found() {
    let mut disk = Disk::new();
    disk.write(1);
    disk.blocks[1] = [0; SIZE];
    disk.read(1);
    assert!(disk.stale());
}

#[test]
fn a_failed_write_may_be_there_or_not_but_must_make_up_its_mind() {
    for done in [false, true] {
        let mut disk = Disk::new();
        disk.write(1);
        let before = disk.blocks[1];
        let failed = disk.checker.begin(Kind::Write, 1..2);
        disk.checker.end(failed, End::Failed);
        if done {
            disk.store(failed, 1);
        }
        disk.read(1);
        disk.read(1);
        assert!(disk.clean());
        if done {
            disk.blocks[1] = before;
        } else {
            disk.store(failed, 1);
        }
        disk.read(1);
        assert!(disk.stale(), "it changed its mind");
    }
}

#[test]
fn a_failed_write_must_not_come_to_pass_after_a_later_one() {
    let mut disk = Disk::new();
    let failed = disk.checker.begin(Kind::Write, 1..2);
    disk.checker.end(failed, End::Failed);
    disk.write(1);
    disk.store(failed, 1);
    disk.read(1);
    assert!(disk.stale());
}

#[test]
fn of_two_writes_at_once_either_may_win() {
    for winner in 0..2 {
        let mut disk = Disk::new();
        let ids = [(); 2].map(|()| disk.checker.begin(Kind::Write, 1..2));
        disk.store(ids[winner], 1);
        ids.iter().for_each(|id| disk.checker.end(*id, End::Done(&[])));
        disk.read(1);
        disk.read(1);
        assert!(disk.clean(), "{:?}", disk.checker.violations());
        disk.store(ids[1 - winner], 1);
        disk.read(1);
        assert!(disk.stale());
    }
}

#[test]
fn a_read_may_find_what_was_there_while_it_was_under_way() {
    let mut disk = Disk::new();
    disk.write(1);
    let before = disk.blocks[1];
    let early = disk.checker.begin(Kind::Read, 1..2);
    disk.write(1);
    disk.write(1);
    let after = disk.blocks[1];
    disk.blocks[1] = before;
    disk.end_read(early, 1);
    assert!(disk.clean());
    disk.blocks[1] = after;
    disk.read(1);
    assert!(disk.clean());
}

#[test]
fn an_operation_ends_exactly_once() {
    let mut disk = Disk::new();
    let id = disk.write(0);
    disk.checker.end(id, End::Failed);
    let open = disk.checker.begin(Kind::Flush, 0..0);
    disk.checker.expect_idle();
    let expected = [Violation::NotOutstanding(id), Violation::NeverEnded(vec![open])];
    assert_eq!(disk.checker.violations(), expected);
}

#[test]
fn zeroes_are_a_value_like_others() {
    let mut disk = Disk::new();
    disk.write(2);
    let zeroes = disk.checker.begin(Kind::WriteZeroes, 2..3);
    disk.checker.end(zeroes, End::Done(&[]));
    let before = disk.blocks[2];
    disk.blocks[2] = [0; SIZE];
    disk.read(2);
    assert!(disk.clean());
    disk.blocks[2] = before;
    disk.read(2);
    assert!(disk.stale());
}

#[test]
fn misplaced_torn_and_short_data_are_found() {
    let mut disk = Disk::new();
    disk.write(2);
    disk.blocks[3] = disk.blocks[2];
    disk.read(3);
    disk.blocks[2][SIZE - 1] ^= 1;
    disk.read(2);
    let short = disk.checker.begin(Kind::Read, 0..2);
    disk.checker.end(short, End::Done(&[0; SIZE]));
    assert!(matches!(
        disk.checker.violations(),
        [
            Violation::Corrupt { bad: Bad::Misplaced { .. }, .. },
            Violation::Corrupt { bad: Bad::Torn { .. }, .. },
            Violation::Length { .. }
        ]
    ));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut disk = Disk::new();
    for _ in 0..100 {
        disk.write(0);
        let failed = disk.checker.begin(Kind::Write, 0..1);
        disk.checker.end(failed, End::Failed);
    }
    disk.write(0);
    assert!(disk.checker.blocks[0].len() <= 2, "{:?}", disk.checker.blocks[0]);
}
