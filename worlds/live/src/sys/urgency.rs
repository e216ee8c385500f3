//! How urgent a thread's work is, where processors are scarce.

use rustix::process::{getpriority_process, setpriority_process};

/// The niceness of threads that step back: a tenth of the processor time that others get.
const STEPPED_BACK: i32 = 10;

/// Has the other threads of this machine go before the calling one, whose work is not urgent: they
/// need not wait for the end of its time slice. Where the system refuses, nothing changes.
pub fn step_back() {
    // On Linux, no process is the calling thread. A thread that is further back stays there.
    if getpriority_process(None).is_ok_and(|niceness| niceness < STEPPED_BACK) {
        let _ = setpriority_process(None, STEPPED_BACK);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_calling_thread_steps_back_and_no_other() {
        let before = getpriority_process(None).unwrap();
        let behind = thread::spawn(|| {
            step_back();
            getpriority_process(None).unwrap()
        });
        assert_eq!(behind.join().unwrap(), STEPPED_BACK.max(before));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
