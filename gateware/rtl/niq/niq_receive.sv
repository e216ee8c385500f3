// Puts packets of the MAC into receive lines.
//
// Source: pure/niq/README.md, "Receiving" and "Sleeping"; `Card::receive`, `Card::give` and
// `Card::poll_interrupt` in pure/niq.
//
//   clk     0        1        2        3        4       5      6      7      8      9
//   state   COLLECT  COLLECT  COLLECT  COLLECT  DECIDE  WRITE  WRITE  WRITE  WRITE  COLLECT
//   mac     0        1        2        3
//   line                                                0      1      2      3
//
// `mac_tready` is low from DECIDE to the end of WRITE: 5 cycles, up to 9 more while a host reads
// a line, and 1,030 more while a queue starts. A frame with `mac_tuser` has a wrong check
// sequence; it is dropped and counted as misshapen.
//
// This card reaches no host memory: there is never room for a packet that is longer than a line.
module niq_receive
  import niq_pkg::*;
(
    input  logic             clk,
    input  logic             rst,

    input  logic [3:0]       is_running,
    // The queue starts or stops: all its counts are 0. Only while `pause` and not `is_writing`.
    input  logic [3:0]       restart,
    input  logic             pause,         // no line is begun
    output logic             is_writing,
    output logic             is_collecting,

    input  logic             mac_tvalid,
    output logic             mac_tready,
    input  logic [127:0]     mac_tdata,
    input  logic [15:0]      mac_tkeep,
    input  logic             mac_tlast,
    input  logic             mac_tuser,     // with `mac_tlast`: the frame is bad

    output logic [47:0]      destination,
    input  logic             is_wanted,     // by a queue, in DECIDE
    input  queue_t           wanted_by,

    // The host's line, 16 bytes: lines taken, and the number for which it wants an interrupt.
    input  logic             word_valid,
    input  write_t           word,

    output logic             line_valid,
    output row_t             line_row,
    output logic [127:0]     line_data,

    output failure_t         failure,
    output receive_events_t  events,
    output logic [3:0]       interrupt      // one cycle
);
  typedef enum logic [1:0] {
    COLLECT,
    DECIDE,
    WRITE
  } state_t;

  state_t            state;
  logic [1:0]        step;
  logic [2:0]        rows;      // that have come; 4 also for more
  logic [13:0]       length;    // or any number above PacketMax for more
  logic              is_bad;
  queue_t            chosen;
  queue_t            queue;
  logic [3:0][127:0] line;
  logic [3:0][15:0]  lap;

  logic [3:0][63:0]  given, returned, awaited, interrupted;

  // Beats of the MAC.
  logic [4:0]   bytes;
  logic [13:0]  length_next;
  logic [127:0] masked;

  always_comb begin
    bytes = 5'd0;
    for (int i = 0; i < 16; i++) begin
      if (mac_tkeep[i]) bytes = 5'(i) + 5'd1;
      masked[8*i +: 8] = mac_tkeep[i] ? mac_tdata[8*i +: 8] : 8'd0;
    end
  end
  assign length_next = length > PacketMax ? length : length + {9'd0, bytes};
  assign mac_tready = state == COLLECT;
  assign destination = line[0][47:0];

  // The host may change its filters during WRITE.
  assign queue = state == DECIDE ? wanted_by : chosen;

  // The packet's fate, in DECIDE.
  logic is_misshapen, has_room, is_given;
  assign is_misshapen = is_bad || length < PacketMin || length > PacketMax;
`ifdef MUTANT_NIQ_LINE_OVERRUN
  // One line too many.
  assign has_room = is_running[queue] && length <= InlineMax
                    && given[queue] - returned[queue] <= 64'd256;
`else
  assign has_room = is_running[queue] && length <= InlineMax
                    && given[queue] - returned[queue] < 64'd256;
`endif
  assign is_given = state == WRITE && step == 2'd3;

  always_comb begin
    events = '0;
    events.length = length[5:0];
    events.received = is_given;
    if (state == DECIDE && !pause) begin
      events.misshapen = is_misshapen;
      events.unwanted = !is_misshapen && !is_wanted;
      events.no_room = !is_misshapen && is_wanted && !has_room;
    end
  end

  assign is_writing = state == WRITE;
  assign is_collecting = state != COLLECT || rows != 3'd0;
  assign line_valid = state == WRITE;
  assign line_row = {queue, given[queue][7:0], step};
  header_t header;
  assign header = '{lap: lap[queue], flags: 8'd0, length: {2'd0, length[5:0]}};
  assign line_data = step == 2'd3 ? {header, line[3][95:0]} : line[step];

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= COLLECT;
      rows <= 3'd0;
      length <= 14'd0;
      line <= '0;
    end else begin
      unique case (state)
        COLLECT:
        if (mac_tvalid) begin
          if (!rows[2]) begin
            line[rows[1:0]] <= masked;
            rows <= rows + 3'd1;
          end
          length <= length_next;
          is_bad <= mac_tuser;
          if (mac_tlast) state <= DECIDE;
        end
        DECIDE:
        if (!pause) begin
          step <= 2'd0;
          chosen <= wanted_by;
          if (is_misshapen || !is_wanted || !has_room) begin
            state <= COLLECT;
            rows <= 3'd0;
            length <= 14'd0;
            line <= '0;
          end else begin
            state <= WRITE;
          end
        end
        default: begin
          step <= step + 2'd1;
          if (is_given) begin
            state <= COLLECT;
            rows <= 3'd0;
            length <= 14'd0;
            line <= '0;
          end
        end
      endcase
    end
  end

  // Numbers of the host: each counts once both its double words have come, in any order.
  logic [3:0][63:0] returned_parts, awaited_parts;
  logic [3:0][3:0]  parts;
  queue_t           host;
  logic [3:0]       parts_now;
  logic [63:0]      returned_now, awaited_now;
  logic             reports, is_fault;

  assign host = word.address[15:14];
  assign parts_now = parts[host] | (word_valid ? word.strobe : 4'd0);
  assign returned_now = {
      word.strobe[1] ? word.data[1] : returned_parts[host][63:32],
      word.strobe[0] ? word.data[0] : returned_parts[host][31:0]
  };
  assign awaited_now = {
      word.strobe[3] ? word.data[3] : awaited_parts[host][63:32],
      word.strobe[2] ? word.data[2] : awaited_parts[host][31:0]
  };
  assign reports = word_valid && parts_now[1:0] == 2'b11;
`ifdef MUTANT_NIQ_TAKEN_UNCHECKED
  // A host that reports fewer lines than before is believed.
  assign is_fault = returned_now > given[host];
`else
  assign is_fault = returned_now - returned[host] > given[host] - returned[host];
`endif
  assign failure = '{valid: reports && is_fault, of_queue: host, fault: FAULT_TAKEN};

  logic [63:0] given_next;
  logic        is_due;
  assign given_next = given[queue] + 64'd1;
`ifdef MUTANT_NIQ_INTERRUPT_TWICE
  assign is_due = is_given && awaited[queue] != 64'd0 && awaited[queue] <= given_next;
`else
  assign is_due = is_given && awaited[queue] > interrupted[queue]
                  && awaited[queue] <= given_next;
`endif

  for (genvar i = 0; i < 4; i++) begin : g_queue
    logic is_host;
    assign is_host = word_valid && host == 2'(i);
    assign interrupt[i] = is_due && queue == 2'(i);

    always_ff @(posedge clk) begin
      if (rst || restart[i]) begin
        given[i] <= 64'd0;
        returned[i] <= 64'd0;
        awaited[i] <= 64'd0;
        interrupted[i] <= 64'd0;
        parts[i] <= 4'd0;
        lap[i] <= 16'd1;
      end else begin
        if (is_given && queue == 2'(i)) begin
          given[i] <= given_next;
          if (given[i][7:0] == 8'hff) lap[i] <= lap[i] == 16'hffff ? 16'd1 : lap[i] + 16'd1;
        end
        if (interrupt[i]) interrupted[i] <= awaited[i];
        if (is_host) begin
          returned_parts[i] <= returned_now;
          awaited_parts[i] <= awaited_now;
          parts[i] <= parts_now & {{2{parts_now[3:2] != 2'b11}}, {2{parts_now[1:0] != 2'b11}}};
          if (reports && !is_fault) returned[i] <= returned_now;
          if (parts_now[3:2] == 2'b11) awaited[i] <= awaited_now;
        end
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, word.window, word.address[13:0]};
endmodule
