// Takes complete slots, one after the other, and sends their packets to the MAC.
//
// Source: pure/niq/README.md, "Sending"; `Card::poll_transmit` and `Card::take` in pure/niq.
//
//   clk        0     1     2     3     4     5     6     7     8
//   state      LOOK  HEAD  LOAD  LOAD  LOAD  SEND  SEND  SEND  SEND
//   row_at     3     0     1     2
//   row              3     0     1     2
//   mac                                      0     1     2     3
//
// LOOK asks for one queue each cycle. With row 0, the slot is judged; with row 2, it is taken. The
// packet leaves from a copy, so a host may restart its queue from then on; before, `is_loading`.
//
// This card reaches no host memory: a slot by reference, and credits that are to be pushed, stop
// the queue with fault 3, Memory.
module niq_transmit
  import niq_pkg::*;
(
    input  logic               clk,
    input  logic               rst,

    input  logic               link_up,
    input  logic [3:0]         is_running,
    input  logic [3:0]         is_pushed,    // the host wants its credits in host memory
    // The queue starts or stops: all its counts are 0. Only while `pause` and not `is_loading`.
    input  logic [3:0]         restart,
    input  logic               pause,        // no slot is begun
    output logic               is_loading,
    output logic               is_sending,

    output queue_t             head_queue,
    input  logic               head_is_complete,
    output row_t               row_at,
    input  logic [127:0]       row,

    output logic [3:0][63:0]   taken,
    // The credit line: slots taken, those up to the last one that asked for a completion.
    output logic [3:0][63:0]   credit,
    output logic [3:0][63:0]   completed,
    output failure_t           failure,
    output transmit_events_t   events,

    output logic               mac_tvalid,
    input  logic               mac_tready,
    output logic [127:0]       mac_tdata,
    output logic [15:0]        mac_tkeep,
    output logic               mac_tlast
);
  typedef enum logic [1:0] {
    LOOK,
    HEAD,
    LOAD,
    SEND
  } state_t;

  state_t            state;
  queue_t            queue;
  logic [1:0]        step;    // LOAD: the row that comes; SEND: the row that leaves
  logic [3:0][127:0] line;
  logic [3:0][15:0]  lap;     // of the next slot of each queue
  logic [3:0][6:0]   unreported;

  header_t     header;
  logic [15:0] next_lap;
  logic [31:0] reference;  // the length of a packet in host memory
  fault_t      fault;
  logic        is_judged, is_taken, asks, reports;
  logic [63:0] taken_next;

  assign header = line[3][127:96];
  assign reference = row[95:64];
  assign next_lap = lap[queue] == 16'hffff ? 16'd1 : lap[queue] + 16'd1;

  // When the first row comes, the header is in `line`.
  always_comb begin
    fault = FAULT_NONE;
    if (header.lap == next_lap) fault = FAULT_OVERRUN;
    else if (header.lap != lap[queue] || (header.flags & ~COMPLETION) != 8'd0) begin
      fault = FAULT_MALFORMED;
    end else if (header.length == ByReference) begin
      fault = reference >= {18'd0, PacketMin} && reference <= {18'd0, PacketMax}
              ? FAULT_MEMORY : FAULT_MALFORMED;
    end else if (header.length < PacketMin[7:0] || header.length > InlineMax[7:0]) begin
      fault = FAULT_MALFORMED;
    end
  end

  assign is_judged = state == LOAD && step == 2'd0;
  assign is_taken = state == LOAD && step == 2'd2;
  assign asks = header.flags[0];
  assign reports = asks || unreported[queue] == REPORT - 7'd1;
  assign taken_next = taken[queue] + 64'd1;

  assign head_queue = queue;
  assign is_loading = state == HEAD || state == LOAD;
  assign is_sending = state == SEND;
  always_comb begin
    row_at = {queue, taken[queue][7:0], step + 2'd1};
    if (state == LOOK) row_at[1:0] = 2'd3;
`ifdef MUTANT_NIQ_ROWS_SWAPPED
    if (state == HEAD) row_at[1:0] = 2'd1;
`else
    if (state == HEAD) row_at[1:0] = 2'd0;
`endif
  end

  always_comb begin
    failure = '{valid: 1'b0, of_queue: queue, fault: fault};
    if (is_judged) failure.valid = fault != FAULT_NONE;
    if (is_taken && reports && is_pushed[queue]) begin
      failure.valid = 1'b1;
      failure.fault = FAULT_MEMORY;
    end
  end

  assign events = '{
      sent: is_taken && link_up,
      link_down: is_taken && !link_up,
      length: header.length[5:0]
  };

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= LOOK;
      queue <= 2'd0;
      step <= 2'd0;
    end else begin
      unique case (state)
        LOOK: begin
          if (!pause && is_running[queue] && head_is_complete) state <= HEAD;
          else queue <= queue + 2'd1;
        end
        HEAD: begin
          line[3] <= row;
          step <= 2'd0;
          state <= LOAD;
        end
        LOAD: begin
          line[step] <= row;
          step <= step + 2'd1;
          if (is_judged && fault != FAULT_NONE) begin
            state <= LOOK;
          end else if (is_taken) begin
            step <= 2'd0;
            state <= link_up ? SEND : LOOK;
          end
        end
        SEND:
        if (mac_tready) begin
          step <= step + 2'd1;
          if (mac_tlast) begin
            state <= LOOK;
            queue <= queue + 2'd1;
          end
        end
      endcase
    end
  end

  // Counts of each queue since its start.
  for (genvar i = 0; i < 4; i++) begin : g_queue
    always_ff @(posedge clk) begin
      if (rst || restart[i]) begin
        taken[i] <= 64'd0;
        credit[i] <= 64'd0;
        completed[i] <= 64'd0;
        lap[i] <= 16'd1;
        unreported[i] <= 7'd0;
      end else if (is_taken && queue == 2'(i)) begin
        taken[i] <= taken_next;
        if (taken[i][7:0] == 8'hff) lap[i] <= next_lap;
`ifdef MUTANT_NIQ_CREDIT_AHEAD
        // A slot more than was taken is reported.
        if (reports) credit[i] <= taken_next + 64'd1;
`else
        if (reports) credit[i] <= taken_next;
`endif
        if (asks) completed[i] <= taken_next;
        unreported[i] <= reports ? 7'd0 : unreported[i] + 7'd1;
      end
    end
  end

  logic [5:0] last_byte;
  assign last_byte = header.length[5:0] - 6'd1;
`ifdef MUTANT_NIQ_VALID_DROPS
  // `tvalid` falls although the beat was not taken.
  logic held;
  always_ff @(posedge clk) held <= !rst && mac_tvalid && !mac_tready;
  assign mac_tvalid = state == SEND && !held;
`else
  assign mac_tvalid = state == SEND;
`endif
  assign mac_tdata = line[step];
  assign mac_tlast = step == last_byte[5:4];
  assign mac_tkeep = mac_tlast ? 16'hffff >> (4'd15 - last_byte[3:0]) : 16'hffff;
endmodule
