//! Real boots, with QEMU's own NVMe controller as the device.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::time::{Duration, Instant};

use guest::{Device, Error, Firmware, Guest, Kit, skip};

/// A guest with an NVMe device over a temporary file, and with the tools for it.
fn with_disk(kit: &Kit) -> (guest::Builder, tempfile::NamedTempFile) {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(256 << 20).unwrap();
    let builder = Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio", "lspci", "mkfs.ext4", "fsck.ext4"])
        .unwrap()
        .device(Device::qemu_nvme(image.path(), "FARLANE1"));
    (builder, image)
}

#[test]
fn a_guest_uses_an_nvme_device_in_every_way_that_tests_will_want() {
    let Some(kit) = skip::kit_or_skip("an NVMe device in a guest") else { return };
    let (builder, image) = with_disk(kit);
    let script = r#"
        set -e
        appears /dev/nvme0n1
        echo "class $(cat /sys/class/nvme/nvme0/device/class) vendor $(cat /sys/class/nvme/nvme0/device/vendor)"
        lspci -nn | grep 'Non-Volatile'
        nvme id-ctrl /dev/nvme0 | grep '^sn'
        nvme show-regs /dev/nvme0 | grep '^version'
        dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
        dd if=/tmp/noise of=/dev/nvme0n1 bs=1M seek=8 conv=fsync 2>/dev/null
        dd if=/dev/nvme0n1 of=/tmp/back bs=1M skip=8 count=4 iflag=direct 2>/dev/null
        cmp /tmp/noise /tmp/back && echo same
        mkfs.ext4 -q /dev/nvme0n1
        mount -t ext4 /dev/nvme0n1 /mnt
        cp /tmp/noise /mnt/noise
        umount /mnt
        mount -t ext4 -o ro /dev/nvme0n1 /mnt
        cmp /tmp/noise /mnt/noise && echo remounted
        umount /mnt
        fsck.ext4 -f -n /dev/nvme0n1
        fio --name=short --filename=/dev/nvme0n1 --rw=randrw --bsrange=512-64k --iodepth=16 --ioengine=libaio \
            --direct=1 --verify=crc32c --size=16m --io_size=4m --minimal >/tmp/fio && echo verified
        printf 'seen by the host' | dd of=/dev/nvme0n1 conv=fsync 2>/dev/null
        tell half way
        await go on
        echo "to standard error" >&2
    "#;
    let mut running = builder.script(script).start().unwrap();
    running.expect("half way", Duration::from_secs(120)).unwrap();
    assert!(running.monitor("info status").unwrap().contains("running"));
    running.tell("go on").unwrap();
    let outcome = running.finish().unwrap().expect_success();
    for line in [
        "class 0x010802 vendor 0x1b36\n",
        "sn        : FARLANE1",
        "version : 0x10400",
        "\nsame\n",
        "\nremounted\n",
        "\nverified\n",
        "\nto standard error\n",
    ] {
        assert!(outcome.output.contains(line), "{line:?} in {}", outcome.output);
    }
    assert!(!outcome.output.contains("reboot: Power down"), "{}", outcome.output);
    assert!(outcome.console.contains("reboot: Power down"), "{}", outcome.console);
    assert!(outcome.boot < outcome.elapsed);
    let bytes = std::fs::read(image.path()).unwrap();
    assert!(bytes.starts_with(b"seen by the host"));
}

#[test]
fn a_failing_script_is_distinguished_from_a_guest_that_panics_or_hangs() {
    let Some(kit) = skip::kit_or_skip("scripts that end badly") else { return };
    let guest = || Guest::builder(kit).unwrap();
    let failed = guest().script("echo before; exit 42; echo after").run().unwrap();
    assert_eq!((failed.status, failed.output.as_str()), (42, "before\n"));

    let script = "echo something first; tell told; await panic; echo c >/proc/sysrq-trigger; sleep 1000";
    let mut running = guest().script(script).start().unwrap();
    running.expect("told", Duration::from_secs(60)).unwrap();
    let error = running.expect("a word that is never sent", Duration::from_secs(2)).unwrap_err();
    let Error::ScriptTimeout { after, tail, .. } = &error else { panic!("{error}") };
    assert_eq!(after.as_secs(), 2, "{error}");
    assert!(tail.contains("something first"), "{error}");
    running.tell("panic").unwrap();
    let error = running.finish().unwrap_err();
    assert!(matches!(error, Error::QemuEnded { .. }), "{error}");
    assert!(error.to_string().contains("sysrq triggered crash"), "{error}");
}

#[test]
fn qemus_refusal_is_reported_in_its_words() {
    let Some(kit) = skip::kit_or_skip("arguments that QEMU refuses") else { return };
    let guest = || Guest::builder(kit).unwrap().script("true");
    let error = guest().device(Device::other("no-such-device")).run().unwrap_err();
    assert!(error.to_string().contains("'no-such-device' is not a valid device model name"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let nobody = Device::vfio_user(directory.path().join("nobody.sock"));
    let error = guest().device(nobody).run().unwrap_err();
    assert!(matches!(error, Error::QemuEnded { .. }), "{error}");
    assert!(error.to_string().contains("nobody.sock"), "{error}");
    let error = guest().boot_limit(Duration::from_secs(1)).run();
    let error = error.unwrap_err();
    assert!(matches!(error, Error::BootTimeout { .. }), "{error}");
    let missing = guest().tools(["no-such-tool"]).unwrap_err();
    assert!(missing.to_string().contains("no-such-tool"), "{missing}");
}

#[test]
fn devices_sit_behind_a_switch_come_and_go_and_the_guest_reboots() {
    let Some(kit) = skip::kit_or_skip("a guest's topology") else { return };
    let images = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    for image in &images {
        image.as_file().set_len(16 << 20).unwrap();
    }
    let disk = |n: usize, serial: &str| Device::qemu_nvme(images[n].path(), serial);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"hello from the host\n").unwrap();
    });
    let script = r#"
        serials() { cat /sys/class/nvme/*/serial 2>/dev/null | tr -d ' ' | sort | tr '\n' ' '; }
        for n in 0 1 2; do appears /dev/nvme${n}n1 5 2>/dev/null; done
        echo "at first: $(serials)"
        tell here
        await look
        for i in $(seq 100); do [ "$(serials)" = "BELOW1 BELOW2 " ] && break; sleep 0.1; done
        echo "then: $(serials)"
        [ -d /sys/module/null_blk ] && echo "a module"
        nc 10.0.2.2 PORT </dev/null
        tell done
        await never
    "#;
    let mut running = Guest::builder(kit)
        .unwrap()
        .firmware(Firmware::Qboot)
        .switch([disk(0, "BELOW1"), disk(1, "BELOW2")])
        .root_port(Some(disk(2, "HOTPLUG")))
        .user_network()
        .unwrap()
        .modules(["null_blk", "ext4"])
        .unwrap()
        .reboots()
        .script(script.replace("PORT", &port.to_string()))
        .start()
        .unwrap();
    let limit = Duration::from_secs(60);
    running.expect("here", limit).unwrap();
    running.monitor("device_del device2").unwrap();
    running.tell("look").unwrap();
    running.expect("done", limit).unwrap();
    server.join().unwrap();
    let expected = "at first: BELOW1 BELOW2 HOTPLUG \nthen: BELOW1 BELOW2 \na module\nhello from the host\n";
    assert_eq!(running.output(), expected);
    running.monitor("system_reset").unwrap();
    running.expect_reboot(limit).unwrap();
    running.expect("here", limit).unwrap();
    assert!(running.output().ends_with("at first: BELOW1 BELOW2 \n"), "{}", running.output());

    let directory = format!("/proc/{}", running.process_id());
    assert!(std::path::Path::new(&directory).exists());
    drop(running);
    assert!(!std::path::Path::new(&directory).exists(), "QEMU outlives its owner, or is a zombie");
}

#[test]
fn the_firmware_boots_from_an_nvme_device() {
    let Some(kit) = skip::kit_or_skip("booting from an NVMe device") else { return };
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), guest::boot_image()).unwrap();
    let boot = |limit: u64| {
        let builder = Guest::builder(kit).unwrap().device(Device::qemu_nvme(image.path(), "BOOT"));
        builder.boot_from_device().boot_limit(Duration::from_secs(limit)).run()
    };
    assert_eq!(boot(60).unwrap().status, 0);
    // Without its signature, the sector is no boot sector, and the firmware has no other disk.
    image.as_file().set_len(0).unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    // So long that an interpreted firmware has looked for it on a busy machine, too.
    let error = boot(10).unwrap_err();
    assert!(matches!(error, Error::BootTimeout { .. }), "{error}");
    assert!(error.to_string().contains("not a bootable disk"), "{error}");
}

#[test]
fn qemu_ends_with_a_killed_owner() {
    let Some(_) = skip::kit_or_skip("a guest whose owner is killed") else { return };
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "echo it runs; sleep 1000").unwrap();
    let image = directory.path().join("disk");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let mut owner = std::process::Command::new(env!("CARGO_BIN_EXE_guest"))
        .arg("--nvme")
        .arg(&image)
        .arg("--script")
        .arg(&script)
        .env("TMPDIR", directory.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(owner.stderr.take().unwrap()));
    assert!(lines.map_while(Result::ok).any(|line| line.contains("it runs")));
    assert_eq!(mentioning(&image), 2, "the owner and QEMU");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while mentioning(&image) > 0 {
        assert!(Instant::now() < until, "QEMU outlives its owner");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Number of processes with this path among their arguments.
fn mentioning(path: &std::path::Path) -> usize {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let arguments = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    arguments.filter(|arguments| String::from_utf8_lossy(arguments).contains(path)).count()
}
