// What holds of tunnel_replay, with 4 frames and 8 beats: numbers stay in order, a frame is read as
// it was put until it has arrived, and a connection that resumes begins with what the peer expects.
//
// The writer keeps to `has_place` and `free_beats`, the peer acknowledges frames that were put.
module tunnel_replay_proof
  import tunnel_pkg::*;
(
    input logic         clk,
    input logic         wants_resume,
    input logic         wants_forget,
    input logic [31:0]  acknowledge,
    input logic         wants_put,
    input kept_t        put_kept,
    input logic         wants_write,
    input logic [127:0] write_data,
    input logic         wants_load,
    input logic         wants_step,
    input logic         wants_sent
);
  localparam int unsigned Frames = 4;
  localparam int unsigned Beats = 8;

  logic started = 1'b0;
  logic link_start;
  always_ff @(posedge clk) started <= 1'b1;
  assign link_start = !started;

  logic         resume, forget, put, write, has_place, waits, load, step, sent, there;
  logic [15:0]  free_beats;
  logic [31:0]  oldest, next, cursor;
  kept_t        kept;
  logic [127:0] data;

  // An acknowledgement is for frames that are kept; one that comes is for frames that were sent.
  assign resume = started && wants_resume && acknowledge - oldest <= next - oldest;
  assign forget = started && wants_forget && !resume
                  && acknowledge - oldest <= cursor - oldest;
  // As tunnel_admit does: the first beat comes with the number, and the others follow.
  assign put = started && wants_put && has_place && free_beats != 16'd0;
  assign write = started && free_beats != 16'd0 && (put || (wants_write && next != 32'd0));
  assign load = started && wants_load && waits;
  assign step = started && wants_step && there && !load;
  assign sent = started && wants_sent && waits && !resume;

  tunnel_replay #(.Frames(Frames), .Beats(Beats)) dut (.*);

  // A frame and a beat of which all is observed.
  logic [31:0]  one;
  logic [3:0]   beat, beat_at;
  kept_t        one_kept;
  logic [127:0] one_data;
  logic         is_put, is_written;
  always_ff @(posedge clk) begin
    one <= one;
    beat <= beat;
    if (link_start) begin
      is_put <= 1'b0;
      is_written <= 1'b0;
    end else begin
      if (put && next == one) begin
        is_put <= 1'b1;
        one_kept <= put_kept;
        beat_at <= dut.head;
      end
      if (write && dut.head == beat) begin
        is_written <= 1'b1;
        one_data <= write_data;
      end
      // Its frame has arrived.
      if (dut.tail - beat - 4'd1 < 4'd8) is_written <= 1'b0;
    end
  end

  logic        resumed, loaded;
  logic [31:0] resumed_at;
  logic [31:0] loaded_at;
  always_ff @(posedge clk) begin
    resumed <= resume;
    resumed_at <= acknowledge;
    loaded <= load;
    loaded_at <= cursor;
    if (started) begin
      numbers_in_order: assert (cursor - oldest <= next - oldest);
      no_more_than_places: assert (next - oldest <= 32'(Frames));
      no_more_than_beats: assert (dut.head - dut.tail <= 4'(Beats));
      if (resumed) resumes_where_expected: assert (cursor == resumed_at && oldest == resumed_at);
      if (is_put && one - oldest < next - oldest) begin
        if (cursor == one) frame_is_kept: assert (kept == one_kept);
        if (loaded && loaded_at == one) frame_begins: assert (dut.place == beat_at);
      end
      if (is_written && dut.place == beat && there) begin
        beat_is_kept: assert (data == one_data);
      end
    end
  end
endmodule
