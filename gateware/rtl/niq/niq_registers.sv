// BAR0: settings of the card and its queues, states, counters; and how a queue starts.
//
// Source: pure/niq/README.md, "BAR0: registers" and "Answers to faults"; `Card::register` and
// `Card::write` in pure/niq. The table of MSI-X is not here: an FPGA's PCIe block or the shell
// around the card has it.
//
// A write that starts, stops or resets a queue waits until no slot and no line is half done: 9
// cycles at most, plus 9 while a host reads a line. A start then zeroes slots and lines, for 1,024
// cycles, before further writes and reads of the host.
//
// Reads: `read_data` is that of `read_address` one cycle before. With `read_follows`, the read
// continues one of the double word before; then the high half of a counter is of the same moment as
// its low half.
module niq_registers
  import niq_pkg::*;
(
    input  logic             clk,
    input  logic             rst,

    input  logic [47:0]      station,   // the card's address; its first byte is in bits 7:0
    input  logic             link_up,

    input  logic             write_valid,
    output logic             write_ready,
    input  write_t           write,
    input  logic [9:0]       read_address,
    input  logic             read_follows,
    output logic [31:0]      read_data,

    // To the filters.
    output logic             reset,     // one cycle: as after power-up, but for the link
    output logic             filter_write,
    output logic [4:0]       filter_read_index,
    input  logic [31:0]      filter_data,
    output logic             is_promiscuous,

    output logic [3:0]       is_running,
    output logic [3:0]       is_pushed,
    output logic             pause,
    input  logic             is_loading,
    input  logic             is_writing,
    output logic [3:0]       restart,
    output logic             clear_slots,
    input  logic             slots_cleared,
    output logic             clear_lines,
    input  logic             lines_cleared,
    output queue_t           clear_queue,
    output logic             is_clearing,

    input  logic [3:0][63:0] taken,
    input  failure_t         transmit_failure,
    input  failure_t         receive_failure,
    input  transmit_events_t transmit_events,
    input  receive_events_t  receive_events
);
  localparam logic [9:0] Identity = 10'h000;
  localparam logic [9:0] Capabilities = 10'h001;
  localparam logic [9:0] Control = 10'h002;
  localparam logic [9:0] Status = 10'h003;
  localparam logic [9:0] LinkChanges = 10'h004;
  localparam logic [9:0] AddressLow = 10'h006;
  localparam logic [9:0] AddressHigh = 10'h007;
  // "NIQ1", its first letter in bits 7:0.
  localparam logic [31:0] IdentityValue = 32'h3151_494e;

  // Registers of a queue, by their offsets in double words.
  localparam logic [3:0] QueueControl = 4'h0;
  localparam logic [3:0] QueueStatus = 4'h1;
  localparam logic [3:0] QueueTaken = 4'h2;
  localparam logic [3:0] QueueAddresses = 4'h4;  // the first of the host's addresses
  localparam logic [3:0] QueueBuffers = 4'h8;

  localparam int unsigned Counts = 9;

  queue_state_t      state[QUEUES];
  fault_t            fault[QUEUES];
  logic [31:0]       control[QUEUES];
  logic [31:0]       settings[QUEUES*8];
  logic [31:0]       is_set;              // settings that were written since the reset
  logic [63:0]       counts[Counts];
  logic [31:0]       link_changes;
  logic              was_up;
  logic              is_starting;

  // Writes.
  logic [9:0]  place;
  logic [31:0] value;
  logic        is_filter, is_queue, is_control, waits;
  queue_t      queue;
  logic [3:0]  register;
  logic        writes;

  assign place = write.address[9:0];
  assign value = write.data[write.address[1:0]];
  assign is_filter = place[9:5] == 5'b00010;
  assign is_queue = place[9:6] == 4'b0100;
  assign queue = place[5:4];
  assign register = place[3:0];
  assign is_control = is_queue && register == QueueControl;

  assign waits = is_control || (place == Control && value[31]);
  assign pause = is_clearing || (write_valid && waits);
  assign write_ready = !is_clearing && !(waits && (is_loading || is_writing));
  assign writes = write_valid && write_ready;
  assign reset = writes && place == Control && value[31];
  assign filter_write = writes && is_filter;
  always_comb begin
    restart = {4{reset}};
    if (writes && is_control) restart[queue] = 1'b1;
  end

  assign is_clearing = is_starting;

  for (genvar i = 0; i < 4; i++) begin : g_queue
    assign is_running[i] = state[i] == QUEUE_RUNNING;
    assign is_pushed[i] = control[i][1];

    logic transmit_fails, receive_fails;
    assign transmit_fails = transmit_failure.valid && transmit_failure.of_queue == 2'(i);
    assign receive_fails = receive_failure.valid && receive_failure.of_queue == 2'(i);

    always_ff @(posedge clk) begin
      if (rst || reset) begin
        state[i] <= QUEUE_STOPPED;
        fault[i] <= FAULT_NONE;
        control[i] <= 32'd0;
      end else if (restart[i]) begin
        state[i] <= QUEUE_STOPPED;
        fault[i] <= FAULT_NONE;
        control[i] <= value;
      end else if (is_starting && !clear_slots && !clear_lines && clear_queue == 2'(i)) begin
        state[i] <= QUEUE_RUNNING;
      end else if (is_running[i] && (transmit_fails || receive_fails)) begin
        state[i] <= QUEUE_FAULTED;
        fault[i] <= transmit_fails ? transmit_failure.fault : receive_failure.fault;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst || reset) begin
      is_starting <= 1'b0;
      clear_slots <= 1'b0;
      clear_lines <= 1'b0;
    end else if (writes && is_control && value[0]) begin
      is_starting <= 1'b1;
      clear_slots <= 1'b1;
      clear_lines <= 1'b1;
      clear_queue <= queue;
    end else begin
      if (slots_cleared) clear_slots <= 1'b0;
      if (lines_cleared) clear_lines <= 1'b0;
      if (!clear_slots && !clear_lines) is_starting <= 1'b0;
    end
  end

  logic       is_setting;
  logic [4:0] setting;
  assign is_setting = is_queue && (register == QueueBuffers
                                   || (register >= QueueAddresses && register < QueueBuffers));
  // Five settings of a queue, at 4 to 8, have the places 4 to 7 and 0.
  assign setting = {queue, register[2:0]};

  always_ff @(posedge clk) begin
    if (writes && is_setting) settings[setting] <= value;
    if (rst || reset) is_set <= 32'd0;
    else if (writes && is_setting) is_set[setting] <= 1'b1;

    if (rst || reset) is_promiscuous <= 1'b0;
    else if (writes && place == Control) is_promiscuous <= value[0];

    was_up <= !rst && link_up;
    if (rst) link_changes <= 32'd0;
    else if (was_up != link_up) link_changes <= link_changes + 32'd1;
  end

  // A queue that has stopped fails no more.
  logic [1:0] failures;
  always_comb begin
    failures = 2'd0;
    if (transmit_failure.valid && is_running[transmit_failure.of_queue]) failures = 2'd1;
    if (receive_failure.valid && is_running[receive_failure.of_queue]
        && !(transmit_failure.valid && transmit_failure.of_queue == receive_failure.of_queue)) begin
      failures = failures + 2'd1;
    end
  end

  logic [63:0] more[Counts];
  always_comb begin
    more[0] = {63'd0, transmit_events.sent};
    more[1] = transmit_events.sent ? {58'd0, transmit_events.length} : 64'd0;
    more[2] = {63'd0, receive_events.received};
    more[3] = receive_events.received ? {58'd0, receive_events.length} : 64'd0;
    more[4] = {63'd0, transmit_events.link_down};
    more[5] = {63'd0, receive_events.unwanted};
    more[6] = {63'd0, receive_events.misshapen};
    more[7] = {63'd0, receive_events.no_room};
    more[8] = {62'd0, failures};
  end
  for (genvar i = 0; i < int'(Counts); i++) begin : g_count
    always_ff @(posedge clk) counts[i] <= rst || reset ? 64'd0 : counts[i] + more[i];
  end

  // Reads.
  queue_t      read_queue;
  logic [3:0]  read_register, count;
  logic [4:0]  read_setting;
  logic [31:0] shown, high;
  assign read_queue = read_address[5:4];
  assign read_register = read_address[3:0];
  assign read_setting = {read_queue, read_register[2:0]};
  assign filter_read_index = read_address[4:0];
  assign count = read_address[4:1];

  always_comb begin
    shown = 32'd0;
    case (read_address)
      Identity: shown = IdentityValue;
      Capabilities: shown = {16'(SLOTS), 16'(QUEUES)};
      Control: shown = {31'd0, is_promiscuous};
      Status: shown = {31'd0, link_up};
      LinkChanges: shown = link_changes;
      AddressLow: shown = station[31:0];
      AddressHigh: shown = {16'd0, station[47:32]};
      default: begin
        if (read_address[9:5] == 5'b00010) shown = filter_data;
        if (read_address[9:5] == 5'b00100 && count < 4'(Counts)) begin
          shown = !read_address[0] ? counts[count][31:0]
                  : read_follows ? high : counts[count][63:32];
        end
        if (read_address[9:6] == 4'b0100) begin
          case (read_register)
            QueueControl: shown = control[read_queue];
            QueueStatus: shown = {21'd0, fault[read_queue], 6'd0, state[read_queue]};
            QueueTaken: shown = taken[read_queue][31:0];
            default: begin
              if (read_register[3:2] == 2'b01 || read_register == QueueBuffers) begin
                shown = is_set[read_setting] ? settings[read_setting] : 32'd0;
              end
            end
          endcase
        end
      end
    endcase
  end

  always_ff @(posedge clk) begin
    read_data <= shown;
    if (!read_address[0]) high <= count < 4'(Counts) ? counts[count][63:32] : 32'd0;
  end

  logic unused;
  assign unused = &{1'b0, write.window, write.address[15:10], write.strobe};
endmodule
