"""The low-latency card between a root complex and a MAC that others wrote.

cocotbext-pcie enumerates, assigns BARs, and reads and writes; its endpoint plays the PCIe block in
front of the circuit, which answers configuration requests. cocotbext-axi carries the streams, and
pauses those of TLPs at random; cocotbext-eth is the MAC, at the pace of 10 Gbit/s. The host below
follows pure/niq/README.md, and knows nothing of Farlane's Rust code.
"""

import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource
from cocotbext.eth import EthMac, EthMacFrame
from cocotbext.pcie.core import Device, Endpoint, RootComplex
from cocotbext.pcie.core.tlp import Tlp, TlpType

STATION = bytes.fromhex("020000000001")
PEER = bytes.fromhex("020000000002")


class Block(Endpoint):
    """The PCIe block: has the configuration space, and hands memory requests to the circuit."""

    def __init__(self, dut):
        super().__init__()
        self.dut = dut
        self.vendor_id, self.device_id, self.class_code = 0x1234, 0x4E49, 0x020000
        self.configure_bar(0, 4096)
        self.configure_bar(2, 256 * 1024, ext=True, prefetch=True)
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "rx_tlp"), dut.clk, dut.rst)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "tx_tlp"), dut.clk, dut.rst)
        for kind in (TlpType.MEM_READ, TlpType.MEM_READ_64, TlpType.MEM_WRITE, TlpType.MEM_WRITE_64):
            self.register_rx_tlp_handler(kind, self.hand_in)
        cocotb.start_soon(self.hand_out())

    async def hand_in(self, tlp):
        self.dut.bar0.value = (self.bar[0] & ~0xFFF) >> 12
        self.dut.bar2.value = ((self.bar[3] << 32 | self.bar[2]) & ~0x3FFFF) >> 18
        self.dut.completer.value = int(self.pcie_id)
        await self.source.send(AxiStreamFrame(bytes(tlp.pack())))

    async def hand_out(self):
        while True:
            frame = await self.sink.recv()
            await self.upstream_send(Tlp.unpack(bytes(frame.tdata)))


class Bench:
    """The circuit with root complex and MAC, enumerated and with queue 0 started."""

    def __init__(self, dut, seed):
        self.dut = dut
        self.random = random.Random(seed)
        cocotb.start_soon(Clock(dut.clk, 4, units="ns").start())
        dut.link_up.value = 1
        dut.station.value = int.from_bytes(STATION, "little")
        dut.interrupt_tready.value = 1
        for port in (dut.bar0, dut.bar2, dut.completer):
            port.value = 0
        self.root = RootComplex()
        self.block = Block(dut)
        self.device = Device(self.block)
        self.root.make_port().connect(self.device)
        self.mac = EthMac(
            tx_bus=AxiStreamBus.from_prefix(dut, "tx_mac"), tx_clk=dut.clk, tx_rst=dut.rst,
            rx_bus=AxiStreamBus.from_prefix(dut, "rx_mac"), rx_clk=dut.clk, rx_rst=dut.rst,
            ifg=12, speed=10e9,
        )
        self.sent = self.received = 0

    def pauses(self):
        while True:
            yield self.random.random() < 0.3

    async def start(self):
        self.block.source.set_pause_generator(self.pauses())
        self.block.sink.set_pause_generator(self.pauses())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await self.root.enumerate()
        found = self.root.find_device(self.block.pcie_id)
        await found.enable_device()
        self.registers, self.window = found.bar_window[0], found.bar_window[2]
        await self.registers.write_dword(0x400, 1)

    async def store(self, packet, asks=False):
        """Stores the next slot in parts, as a write-combining buffer may leave."""
        lap = self.sent // 256 % 65535 + 1
        line = packet.ljust(60, b"\0") + struct.pack("<BBH", len(packet), asks, lap)
        parts, place = [], 0
        while place < 64:
            length = 4 * self.random.randint(1, 16)
            parts.append((place, line[place:place + length]))
            place += length
        self.random.shuffle(parts)
        for place, part in parts:
            await self.window.write(self.sent % 256 * 64 + place, part)
        self.sent += 1

    async def poll(self):
        """Reads the next line until it is there, and returns its packet."""
        lap = self.received // 256 % 65535 + 1
        for _ in range(100):
            line = await self.window.read(0x4000 + self.received % 256 * 64, 64)
            length, flags, found = struct.unpack("<BBH", line[60:])
            if found == lap:
                assert flags == 0
                self.received += 1
                return bytes(line[:length])
        raise AssertionError(f"no line {self.received} came after 100 reads")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_root_complex_finds_the_card(dut):
    bench = Bench(dut, 1)
    await bench.start()
    assert await bench.registers.read(0, 4) == b"NIQ1"
    assert await bench.registers.read_dword(4) == 4 | 256 << 16
    assert await bench.registers.read(0x18, 6) == STATION
    assert await bench.registers.read_dword(0x404) == 1, "queue 0 runs"


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def packets_leave_by_lines_and_come_in_lines(dut):
    bench = Bench(dut, 2)
    await bench.start()
    for number in range(40):
        length = bench.random.randint(14, 60)
        packet = (PEER + STATION + bench.random.randbytes(48))[:length]
        await bench.store(packet, asks=number == 29)
        frame = await bench.mac.tx.recv()
        assert bytes(frame.data) == packet, f"packet {number} leaves"
        answer = (STATION + PEER + bench.random.randbytes(48))[:length]
        await bench.mac.rx.send(EthMacFrame(answer))
        assert await bench.poll() == answer, f"answer {number} comes"
    taken, completed = struct.unpack("<QQ", await bench.window.read(0x8000, 16))
    assert (taken, completed) == (30, 30)
    counts = struct.unpack("<9Q", await bench.registers.read(0x200, 72))
    assert counts[0] == counts[2] == 40 and counts[4:] == (0,) * 5, counts
