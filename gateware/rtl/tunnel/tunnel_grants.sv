// The receiver's account: TLPs that came, TLPs that were passed on, and the peer's limits.
//
// Source: pure/tunnel/protocol.md, section 5; `Granting` of the Rust engine. Counts are from the
// start of the session and wrap.
//
//             ____      ____      ____
// clk      __/    \____/    \____/    \__
// passed   __/‾‾‾‾‾‾‾‾‾\_________________
// limits   X old       X one header more
// announce ____________/‾‾‾‾‾‾‾‾‾\_______   a Credit with `limits` goes out
// segment  ____________/‾‾‾‾‾‾‾‾‾\_______   if half a window was not announced
module tunnel_grants
  import tunnel_pkg::*;
(
    input  logic       clk,
    input  logic       link_start,
    input  limits_t    window,
    // A TLP has come with this cost. `fits` says whether it was granted.
    input  logic       arrive,
    input  lane_t      lane,
    input  logic [8:0] units,
    output logic       fits,
    input  logic       drop,          // the TLP is passed on at once
    // A TLP has left.
    input  logic       passed,
    input  lane_t      passed_lane,
    input  logic [8:0] passed_units,
    input  logic       announce,
    output limits_t    limits,
    output logic       company,       // worth sending along
    output logic       segment        // worth sending alone
);
  amount_t [2:0] arrived, done, announced;
  amount_t then_arrived;
  assign then_arrived = amount_plus(arrived[lane], cost_of(units));
  assign fits = amount_within(then_arrived, announced[lane]);

  amount_t news;
  always_comb begin
    company = 1'b0;
    segment = 1'b0;
    for (int place = 0; place < 3; place++) begin
`ifdef MUTANT_TUNNEL_GRANT_EARLY
      // TLPs that still wait here are granted again.
      limits.lane[place] = amount_plus(arrived[place], window.lane[place]);
`else
      limits.lane[place] = amount_plus(done[place], window.lane[place]);
`endif
      news.headers = limits.lane[place].headers - announced[place].headers;
      news.data = limits.lane[place].data - announced[place].data;
      if (news.headers > window.lane[place].headers >> 2) company = 1'b1;
      if (news.data > window.lane[place].data >> 2) company = 1'b1;
      if (news.headers > window.lane[place].headers >> 1) segment = 1'b1;
      if (news.data > window.lane[place].data >> 1) segment = 1'b1;
    end
  end

  amount_t [2:0] done_next;
  always_comb begin
    done_next = done;
    if (passed) done_next[passed_lane] = amount_plus(done[passed_lane], cost_of(passed_units));
    if (drop) done_next[lane] = amount_plus(done_next[lane], cost_of(units));
  end

  always_ff @(posedge clk) begin
    done <= done_next;
    if (arrive) arrived[lane] <= then_arrived;
    if (announce) announced <= limits.lane;
    if (link_start) begin
      arrived <= '0;
      done <= '0;
      announced <= window.lane;
    end
  end
endmodule
