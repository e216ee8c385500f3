// The registers, on AXI4-Lite of 32 bits.
//
// Source: pure/record/registers.md, from 000h to 2ffh. From 400h on are those by which software
// shows the circuit its SSD; README.md beside this file lists them. They can be written while
// neither direction is busy. A write of less than 4 bytes does nothing.
module streamer_registers
  import streamer_pkg::*;
#(
    parameter int unsigned GapBits = 9
) (
    input  logic               clk,
    input  logic               rst,

    input  logic               s_awvalid,
    output logic               s_awready,
    input  logic [11:0]        s_awaddr,
    input  logic               s_wvalid,
    output logic               s_wready,
    input  logic [31:0]        s_wdata,
    input  logic [3:0]         s_wstrb,
    output logic               s_bvalid,
    input  logic               s_bready,
    input  logic               s_arvalid,
    output logic               s_arready,
    input  logic [11:0]        s_araddr,
    output logic               s_rvalid,
    input  logic               s_rready,
    output logic [31:0]        s_rdata,

    output setup_t             setup,
    output page_t              media,
    input  logic               is_clearing,
    input  logic               is_busy,
    input  logic               is_starting,  // reads wait: they show a start's registers whole
    output logic [1:0]         starts,
    output logic [1:0]         stops,
    output logic [1:0][63:0]   first,
    output logic [1:0][63:0]   maximum,
    output logic [1:0][63:0]   chunks_max,

    input  logic [1:0][2:0]    state,
    input  logic [1:0][47:0]   bytes,
    input  logic [1:0][47:0]   stored,
    input  logic [1:0][47:0]   lost,
    input  logic [1:0][31:0]   fill,
    input  logic [1:0][31:0]   high_water,
    input  logic [1:0][47:0]   last_address,
    input  logic [31:0]        gaps,
    output logic [GapBits-1:0] gap_index,
    input  page_t              gap_page,
    input  logic [26:0]        gap_chunks,
    input  logic               gap_behind
);
  // Writes.
  logic        writes, may_write, is_direction, of_direction, is_high;
  logic [31:0] value;
  logic [11:0] to;
  logic [31:0] model[16];

  assign writes = s_awvalid && s_wvalid && (!s_bvalid || s_bready);
  assign s_awready = writes;
  assign s_wready = writes;
  assign value = s_wdata;
  assign to = s_awaddr;
  assign may_write = writes && s_wstrb == 4'hf && !is_busy;
  assign is_direction = to[11:8] == 4'd1 || to[11:8] == 4'd2;
  assign of_direction = to[9];
  assign is_high = to[2];

  always_comb begin
    starts = 2'b00;
    stops = 2'b00;
    if (writes && s_wstrb == 4'hf && is_direction && to[7:2] == 6'd0) begin
      // Stop comes before start.
      stops[of_direction] = value[1];
      starts[of_direction] = value[0] && !is_busy;
    end
  end

  function automatic logic [63:0] half(input logic [63:0] old, input logic high,
                                       input logic [31:0] written);
    return high ? {written, old[31:0]} : {old[63:32], written};
  endfunction

  logic [63:0] buffer, window, tail_bell, head_bell, media_bytes;
  assign buffer = half({setup.buffer, 17'd0}, is_high, value);
  assign window = half({setup.window, 23'd0}, is_high, value);
  assign tail_bell = half({setup.tail_bell, 2'd0}, is_high, value);
  assign head_bell = half({setup.head_bell, 2'd0}, is_high, value);
  assign media_bytes = half({16'd0, media, 12'd0}, is_high, value);

  always_ff @(posedge clk) begin
    if (rst) s_bvalid <= 1'b0;
    else if (writes) s_bvalid <= 1'b1;
    else if (s_bready) s_bvalid <= 1'b0;

    if (rst) begin
      setup <= '0;
      media <= 36'd0;
      first <= '0;
      maximum <= '0;
      chunks_max <= '0;
    end else if (may_write && is_direction) begin
      case (to[7:3])
        5'h01: first[of_direction] <= half(first[of_direction], is_high, value);
        5'h02: maximum[of_direction] <= half(maximum[of_direction], is_high, value);
        5'h0a: chunks_max[of_direction] <= half(chunks_max[of_direction], is_high, value);
        default: ;
      endcase
    end else if (may_write && to[11:8] == 4'd4) begin
      if (to[7:2] == 6'h00) {setup.waits, setup.enable} <= value[1:0];
      if (to[7:2] == 6'h01) {setup.block_shift, setup.chunk_shift} <= {value[9:8], value[2:0]};
      if (to[7:2] == 6'h02) setup.chunks <= value[14:0];
      if (to[7:2] == 6'h03) setup.entries <= value[10:0];
      if (to[7:2] == 6'h04) setup.nsid <= value;
      case (to[7:3])
        5'h03: setup.buffer <= buffer[63:17];
        5'h04: setup.window <= window[63:23];
        5'h05: setup.tail_bell <= tail_bell[63:2];
        5'h06: setup.head_bell <= head_bell[63:2];
        5'h07: media <= media_bytes[47:12];
        default: ;
      endcase
    end
    if (may_write && to[11:6] == 6'h11) model[to[5:2]] <= value;
    if (writes && s_wstrb == 4'hf && to[11:2] == 10'h120) gap_index <= value[GapBits-1:0];
  end

  // Reads.
  logic        is_kept, of_read, reads;
  logic [9:0]  kept_at, from;
  logic [31:0] kept, half_shown;
  logic [63:0] shown;
  logic [11:0] model_at;
  assign from = s_araddr[11:2];
  assign of_read = s_araddr[9];
  assign reads = s_arvalid && s_arready;
  assign s_arready = (!s_rvalid || s_rready) && !is_starting && starts == 2'b00;
  assign model_at = s_araddr - 12'h20;

  always_comb begin
    shown = 64'd0;
    if (s_araddr[11:8] == 4'd0) begin
      case (s_araddr[7:3])
        5'h00: shown = {32'd1, 32'h4252_4c46};
        5'h01: shown = {32'd0, 32'hb};
        5'h02: shown = {16'd0, media, 12'd0};
        5'h03: shown = {17'd0, setup.chunks, 32'd4096 << setup.chunk_shift};
        5'h04, 5'h05, 5'h06, 5'h07, 5'h08: shown = {2{model[model_at[5:2]]}};
        default: ;
      endcase
    end else if (s_araddr[11:8] == 4'd1 || s_araddr[11:8] == 4'd2) begin
      case (s_araddr[7:3])
        5'h00: shown = {29'd0, state[of_read], 32'd0};
        5'h01: shown = first[of_read];
        5'h02: shown = maximum[of_read];
        5'h03: shown = {16'd0, last_address[of_read]};
        5'h04: shown = {16'd0, bytes[of_read]};
        5'h05: shown = {16'd0, stored[of_read]};
        5'h06: shown = {16'd0, lost[of_read]};
        5'h07: shown = of_read ? 64'd0 : {32'd0, gaps};
        5'h08: shown = {32'd0, fill[of_read]};
        5'h09: shown = {32'd0, high_water[of_read]};
        5'h0a: shown = chunks_max[of_read];
        default: ;
      endcase
    end else if (s_araddr[11:8] == 4'd4) begin
      case (s_araddr[7:3])
        5'h00: shown = {22'd0, setup.block_shift, 5'd0, setup.chunk_shift,
                        setup.enable && !is_clearing, 29'd0, setup.waits, setup.enable};
        5'h01: shown = {21'd0, setup.entries, 17'd0, setup.chunks};
        5'h02: shown = {32'd0, setup.nsid};
        5'h03: shown = {setup.buffer, 17'd0};
        5'h04: shown = {setup.window, 23'd0};
        5'h05: shown = {setup.tail_bell, 2'd0};
        5'h06: shown = {setup.head_bell, 2'd0};
        5'h07: shown = {16'd0, media, 12'd0};
        5'h11: shown = {16'd0, gap_page, 12'd0};
        5'h12: shown = {31'd0, gap_behind, 5'd0, gap_chunks};
        default: ;
      endcase
    end
  end
  assign half_shown = is_kept && kept_at == from ? kept : from[0] ? shown[63:32] : shown[31:0];

  always_ff @(posedge clk) begin
    if (reads) begin
      s_rdata <= half_shown;
      kept <= shown[63:32];
      kept_at <= from | 10'd1;
      // A state is of this moment, and the model has no halves.
      is_kept <= !from[0] && (s_araddr[11:8] == 4'd0 ? s_araddr[7:3] == 5'd2
                                                     : s_araddr[7:3] != 5'd0);
    end
    if (rst) begin
      s_rvalid <= 1'b0;
      is_kept <= 1'b0;
    end else if (reads) s_rvalid <= 1'b1;
    else if (s_rready) s_rvalid <= 1'b0;
  end

  logic unused;
  assign unused = &{1'b0, to[1:0], s_araddr[1:0], model_at[11:6], model_at[1:0],
                    buffer[16:0], window[22:0], tail_bell[1:0], head_bell[1:0],
                    media_bytes[63:48], media_bytes[11:0]};
endmodule
