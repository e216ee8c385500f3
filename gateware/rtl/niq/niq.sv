// A low-latency network card as a PCIe function: packets of up to 60 bytes, in slots and lines.
//
// Source: pure/niq/README.md, which has the registers and the layout. The Rust engine is
// `niq::Card`; hosts need not notice which of the two they drive.
//
// Ports to connect
//   bar0, bar2    where the function's BARs are, in bytes: 4 KiB of registers, 256 KiB of window
//   completer     bus, device and function, for completions
//   rx_tlp        memory requests of the host: AXI4-Stream of 128 bits, byte 0 of a TLP in bits
//                 7:0, whole double words. The PCIe block answers configuration requests.
//   tx_tlp        completions, likewise
//   tx_mac, rx_mac
//                 packets from their destination address on, without check sequence: AXI4-Stream
//                 of 128 bits. The MAC pads frames of fewer than 60 bytes. `rx_mac_tready` is low
//                 for up to 14 cycles after a packet, and for 1,050 while a queue starts.
//                 `rx_mac_tuser` with `tlast`: a bad frame.
//   interrupt     the vector of a queue, for the MSI-X of the PCIe block: AXI4-Stream
//   station       the card's address, its first byte in bits 7:0
//   busy          a further cycle changes something. The card has no timer: `wake_at` is never.
//
// This card has no DMA, which the card of pure/niq has. A slot by reference, and credits that are
// to be pushed, stop their queue with fault 3, Memory; a packet of more than 60 bytes that comes is
// dropped and counted as no room. The card never sleeps.
module niq
  import niq_pkg::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic [63:12] bar0,
    input  logic [63:18] bar2,
    input  logic [15:0]  completer,
    input  logic [47:0]  station,
    input  logic         link_up,

    input  logic         rx_tlp_tvalid,
    output logic         rx_tlp_tready,
    input  logic [127:0] rx_tlp_tdata,
    input  logic [15:0]  rx_tlp_tkeep,
    input  logic         rx_tlp_tlast,

    output logic         tx_tlp_tvalid,
    input  logic         tx_tlp_tready,
    output logic [127:0] tx_tlp_tdata,
    output logic [15:0]  tx_tlp_tkeep,
    output logic         tx_tlp_tlast,

    output logic         tx_mac_tvalid,
    input  logic         tx_mac_tready,
    output logic [127:0] tx_mac_tdata,
    output logic [15:0]  tx_mac_tkeep,
    output logic         tx_mac_tlast,

    input  logic         rx_mac_tvalid,
    output logic         rx_mac_tready,
    input  logic [127:0] rx_mac_tdata,
    input  logic [15:0]  rx_mac_tkeep,
    input  logic         rx_mac_tlast,
    input  logic         rx_mac_tuser,

    output logic         interrupt_tvalid,
    input  logic         interrupt_tready,
    output logic [1:0]   interrupt_tdata,

    output logic         busy,
    output logic [63:0]  wake_at
);
  // Requests.
  logic   write_valid, write_ready, read_valid, read_ready;
  write_t write;
  read_t  read;

  niq_requests requests (
      .clk, .rst, .bar0, .bar2,
      .tlp_tvalid(rx_tlp_tvalid), .tlp_tready(rx_tlp_tready), .tlp_tdata(rx_tlp_tdata),
      .tlp_tkeep(rx_tlp_tkeep), .tlp_tlast(rx_tlp_tlast),
      .write_valid, .write_ready, .write, .read_valid, .read_ready, .read
  );

  // Parts of the window that a host writes.
  logic   is_clearing, register_ready, slot_valid, word_valid;
  write_t word;
  assign write_ready = write.window ? !is_clearing : register_ready;
  assign slot_valid = write_valid && write.window && !is_clearing && write.address[13:12] == 2'b00;
  assign word_valid = write_valid && write.window && !is_clearing
                      && write.address[13:2] == 12'h900;
  always_comb begin
    word = write;
    // The row behind has no meaning.
    word.strobe = write.strobe & (4'hf << write.address[1:0]);
  end

  // Registers and filters.
  logic             reset, filter_write, is_promiscuous, is_wanted;
  logic [4:0]       filter_read_index;
  logic [31:0]      filter_data, register_data;
  logic [47:0]      destination;
  queue_t           wanted_by;
  logic [3:0]       is_running, is_pushed, restart;
  logic             pause, is_loading, is_sending, is_writing, is_reading, is_collecting;
  logic             clear_slots, slots_cleared, clear_lines, lines_cleared, read_follows;
  queue_t           clear_queue;
  logic [15:0]      read_address;
  logic [3:0][63:0] taken, credit, completed;
  failure_t         transmit_failure, receive_failure;
  transmit_events_t transmit_events;
  receive_events_t  receive_events;

  niq_registers registers (
      .clk, .rst, .station, .link_up,
      .write_valid(write_valid && !write.window), .write_ready(register_ready), .write,
      .read_address(read_address[9:0]), .read_follows, .read_data(register_data),
      .reset, .filter_write, .filter_read_index, .filter_data, .is_promiscuous,
      .is_running, .is_pushed, .pause, .is_loading, .is_writing, .restart,
      .clear_slots, .slots_cleared, .clear_lines, .lines_cleared, .clear_queue, .is_clearing,
      .taken, .transmit_failure, .receive_failure, .transmit_events, .receive_events
  );

  niq_filters filters (
      .clk, .rst(rst || reset),
      .write_valid(filter_write), .write_index(write.address[4:0]),
      .write_data(write.data[write.address[1:0]]),
      .read_index(filter_read_index), .read_data(filter_data),
      .station, .is_promiscuous, .destination, .is_wanted, .queue(wanted_by)
  );

  // From slots to the MAC.
  logic [3:0][8:0] taken_low;
  queue_t          head_queue;
  logic            head_is_complete;
  row_t            slot_row;
  logic [127:0]    slot_data;
  for (genvar i = 0; i < 4; i++) begin : g_taken
    assign taken_low[i] = taken[i][8:0];
  end

  niq_slots slots (
      .clk, .rst, .clear(clear_slots), .clear_queue, .cleared(slots_cleared),
      .write_valid(slot_valid), .write, .taken(taken_low), .head_queue, .head_is_complete,
      .row_at(slot_row), .row(slot_data)
  );

  niq_transmit transmit (
      .clk, .rst, .link_up, .is_running, .is_pushed, .restart, .pause, .is_loading, .is_sending,
      .head_queue, .head_is_complete, .row_at(slot_row), .row(slot_data),
      .taken, .credit, .completed, .failure(transmit_failure), .events(transmit_events),
      .mac_tvalid(tx_mac_tvalid), .mac_tready(tx_mac_tready), .mac_tdata(tx_mac_tdata),
      .mac_tkeep(tx_mac_tkeep), .mac_tlast(tx_mac_tlast)
  );

  // From the MAC to lines.
  logic             line_valid;
  row_t             line_row;
  logic [127:0]     line_data;
  logic [3:0][31:0] read_line;
  logic [3:0]       interrupts;

  niq_receive receive (
      .clk, .rst, .is_running, .restart, .pause(pause || is_reading), .is_writing, .is_collecting,
      .mac_tvalid(rx_mac_tvalid), .mac_tready(rx_mac_tready), .mac_tdata(rx_mac_tdata),
      .mac_tkeep(rx_mac_tkeep), .mac_tlast(rx_mac_tlast), .mac_tuser(rx_mac_tuser),
      .destination, .is_wanted, .wanted_by, .word_valid, .word,
      .line_valid, .line_row, .line_data,
      .failure(receive_failure), .events(receive_events), .interrupt(interrupts)
  );

  niq_lines lines (
      .clk, .rst, .clear(clear_lines), .clear_queue, .cleared(lines_cleared),
      .write_valid(line_valid), .write_row(line_row), .write_data(line_data),
      .read_address, .data(read_line)
  );

  // To the host.
  logic completer_is_busy;

  niq_completer completions (
      .clk, .rst, .completer, .read_valid, .read_ready, .read, .is_clearing,
      .is_writing, .is_reading, .read_address, .read_follows,
      .register_data, .line_data(read_line), .credit, .completed,
      .tlp_tvalid(tx_tlp_tvalid), .tlp_tready(tx_tlp_tready), .tlp_tdata(tx_tlp_tdata),
      .tlp_tkeep(tx_tlp_tkeep), .tlp_tlast(tx_tlp_tlast), .is_busy(completer_is_busy)
  );

  logic [3:0] pending;
  queue_t     vector;
  always_comb begin
    vector = 2'd0;
    for (int i = 3; i >= 0; i--) if (pending[i]) vector = 2'(i);
  end
  // A vector stays until it is taken, also when that of a lower queue comes.
  logic [1:0] shown;
  logic       is_shown;
  assign interrupt_tvalid = is_shown;
  assign interrupt_tdata = shown;
  always_ff @(posedge clk) begin
    if (rst) begin
      pending <= 4'd0;
      is_shown <= 1'b0;
    end else begin
      pending <= pending | interrupts;
      if (!is_shown || interrupt_tready) begin
        is_shown <= pending != 4'd0;
        shown <= vector;
        if (pending != 4'd0) pending[vector] <= interrupts[vector];
      end
    end
  end

  // Transmit looks at a queue each cycle: after four without a slot, there is none.
  logic [2:0] looks;
  always_ff @(posedge clk) begin
    if (rst || write_valid || is_clearing || is_loading || is_sending) looks <= 3'd0;
    else if (!looks[2]) looks <= looks + 3'd1;
  end
  assign busy = rst || !looks[2] || write_valid || read_valid || rx_tlp_tvalid || rx_mac_tvalid
                || is_clearing || is_loading || is_sending || is_collecting || completer_is_busy
                || pending != 4'd0 || is_shown;
  assign wake_at = '1;

  logic unused;
  assign unused = &{1'b0, read_address[15:10]};
endmodule
