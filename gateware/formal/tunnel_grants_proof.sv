// What holds of tunnel_grants, for any peer that keeps to its credits: TLPs that the peer may send
// and TLPs that wait here are never more than the window.
module tunnel_grants_proof
  import tunnel_pkg::*;
(
    input logic       clk,
    input logic       wants_start,
    input limits_t    any_window,
    input logic       wants_arrive,
    input lane_t      lane,
    input logic [8:0] units,
    input logic       wants_drop,
    input logic       wants_pass,
    input lane_t      passed_lane,
    input logic [8:0] passed_units,
    input logic       announce
);
  logic has_window = 1'b0;
  logic started = 1'b0;
  always_ff @(posedge clk) begin
    has_window <= 1'b1;
    started <= has_window;
  end

  logic    link_start, arrive, fits, drop, passed, company, segment;
  limits_t window, limits;
  assign link_start = !started || wants_start;
  assign arrive = wants_arrive && fits;
  assign drop = wants_drop && arrive;

  tunnel_grants dut (.*);

  // The window is that of the session.
  always_ff @(posedge clk) begin
    if (!has_window) window <= any_window;
    else window <= window;
  end
  // A lane of which all is observed.
  logic [1:0] one;
  always_ff @(posedge clk) one <= one;

  // What waits here: a TLP that leaves has come.
  amount_t waiting, ahead, left_over;
  assign waiting.headers = dut.arrived[one].headers - dut.done[one].headers;
  assign waiting.data = dut.arrived[one].data - dut.done[one].data;
  assign ahead.headers = dut.announced[one].headers - dut.arrived[one].headers;
  assign ahead.data = dut.announced[one].data - dut.arrived[one].data;
  assign left_over.headers = dut.announced[one].headers - dut.done[one].headers;
  assign left_over.data = dut.announced[one].data - dut.done[one].data;

  assign passed = wants_pass && !link_start;
  always_comb begin
    assume (one <= 2'd2 && lane <= LaneCompletion && passed_lane <= LaneCompletion);
    if (has_window) begin
      assume (window.lane[one].headers <= 32'h0100_0000 && window.lane[one].data <= 32'h0100_0000);
    end
    if (passed && passed_lane == one) begin
      assume (waiting.headers != 32'd0 && waiting.data >= {23'd0, passed_units});
    end
  end

  logic past_started = 1'b0;
  always_ff @(posedge clk) past_started <= started;

  always_ff @(posedge clk) begin
    if (past_started && !link_start) begin
      waiting_within_window: assert (waiting.headers <= window.lane[one].headers
                                     && waiting.data <= window.lane[one].data);
      granted_within_window: assert (ahead.headers <= window.lane[one].headers
                                     && ahead.data <= window.lane[one].data);
      both_within_window: assert (left_over.headers <= window.lane[one].headers
                                  && left_over.data <= window.lane[one].data);
      nothing_is_withdrawn: assert (amount_within(dut.announced[one], limits.lane[one]));
    end
  end
endmodule
