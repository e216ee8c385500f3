// A port of a distributed switch: PCI Express on one side, a byte stream on the other.
//
// Source: pure/tunnel/protocol.md; the circuit does what `farlane_tunnel::Session` does, in either
// role. It has no lookahead, no strands, no Registers, no TLS. gateware/README.md has the table of
// ports and timing diagrams.
//
//   s_tlp ──> admit ──> replay ──> tx ──┬──> m_net
//                          hello_tx ────┘
//   m_tlp <── store <── rx ─────────┬── window <── s_net
//                       hello_rx ───┘
module tunnel_port
  import tunnel_pkg::*;
#(
    parameter int unsigned MaxPayload       = 256,   // bytes: 128 to 4096, a power of two
    parameter int unsigned ReplayFrames     = 128,   // a power of 2; acknowledgements come after 64
    parameter int unsigned ReplayBeats      = 4096,  // of 16 bytes; a power of two, at most 32768
    // Stores for incoming TLPs. With the credits of `cfg_window`, the longest TLP and up to three
    // prefixes they need: a main item for each header of posted requests and completions, and 17;
    // two main beats for each such header, one for each unit of data, and MaxPayload / 16 + 4; the
    // same of the side store for non-posted requests, without the 17. All are powers of two.
    parameter int unsigned MainItems        = 256,
    parameter int unsigned MainBeats        = 2048,
    parameter int unsigned SideItems        = 32,
    parameter int unsigned SideBeats        = 128,
    parameter int unsigned Waiting          = 16     // non-posted requests without credit
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [63:0]  now,             // nanoseconds; never goes back
    // Settings, which change while `run` is low.
    input  logic         cfg_upstream,    // dials, towards the root complex; else waits
    input  logic         cfg_digests,     // upstream: all frames have digests
    input  logic         cfg_stamps,      // TLP frames have time stamps
    input  logic [127:0] cfg_instance,    // random; the first byte in bits 127:120
    input  logic [127:0] cfg_name,        // for people; the first byte in bits 127:120
    input  logic [4:0]   cfg_name_length, // bytes, 0 to 16
    input  logic [31:0]  cfg_hold_ms,
    input  logic [31:0]  cfg_silence_ms,
    input  logic [39:0]  cfg_handshake,   // from here on nanoseconds
    input  logic [39:0]  cfg_ping,
    input  logic [39:0]  cfg_acknowledge,
    input  logic [39:0]  cfg_redial_min,
    input  logic [39:0]  cfg_redial_max,
    input  logic [191:0] cfg_window,      // the peer's limits, as in a Credit: posted headers first
    input  logic [191:0] entropy,         // new in every cycle; downstream: not to be guessed
    input  logic         run,             // low closes the session
    // The stream's connection.
    output logic         net_dial,        // upstream: until `net_connected` or `net_failed`
    input  logic         net_failed,      // for one cycle
    input  logic         net_connected,   // low for a cycle at least between two connections
    output logic         net_close,       // send the bytes that were given, then disconnect
    input  logic         s_net_tvalid,
    output logic         s_net_tready,
    input  logic [127:0] s_net_tdata,
    input  logic [15:0]  s_net_tkeep,     // contiguous from bit 0
    output logic         m_net_tvalid,
    input  logic         m_net_tready,
    output logic [127:0] m_net_tdata,
    output logic [15:0]  m_net_tkeep,     // contiguous from bit 0, a multiple of four bytes
    // TLPs of the PCI Express side.
    input  logic         s_tlp_tvalid,
    output logic         s_tlp_tready,
    input  logic [127:0] s_tlp_tdata,     // as on the link: the first byte in bits 7:0
    input  logic         s_tlp_tlast,
    output logic [7:0]   s_tlp_np_room,   // further non-posted requests that find a place
    // TLPs for the PCI Express side.
    output logic         m_tlp_tvalid,
    input  logic         m_tlp_tready,
    output logic [127:0] m_tlp_tdata,
    output logic [3:0]   m_tlp_tkeep,     // a bit for each double word
    output logic         m_tlp_tlast,
    input  logic         m_tlp_np_ok,     // there is room for a non-posted request
    // Hot resets.
    input  logic         hot_reset,       // upstream, for one cycle: reset the device
    output logic         reset_valid,     // downstream: the device is to be reset
    input  logic         reset_ready,     // it was reset
    // What there is to see.
    output logic         link_up,
    output logic         open,            // a connection carries the link
    output logic         stopped,         // refused for good; `run` low and high tries again
    output logic [31:0]  dropped,         // TLPs that came while the link was down, or too long
    output logic [31:0]  resumptions,
    output logic [63:0]  round_trip,      // nanoseconds, of the latest Ping
    output logic         busy,            // a further cycle does something by itself
    output logic [63:0]  wake_at          // when something becomes due; all ones if nothing does
);
  limits_t window;
  always_comb begin
    for (int place = 0; place < 3; place++) begin
      window.lane[place].headers = cfg_window[160-64*place+:32];
      window.lane[place].data = cfg_window[128-64*place+:32];
    end
  end

  // ---- Bytes in ----
  logic net_ready, net_discard, window_ready, net_partial;
  logic [3:0][31:0] words;
  logic [3:0] count;
  logic [2:0] take;
  stream_window stream (
      .clk,
      .clear(net_discard || rst),
      .s_tvalid(s_net_tvalid && net_ready),
      .s_tready(window_ready),
      .s_tdata(s_net_tdata),
      .s_tkeep(s_net_tkeep),
      .words,
      .count,
      .take,
      .partial(net_partial)
  );
  assign s_net_tready = net_ready && window_ready;

  // ---- Digests of incoming bytes ----
  logic hello_take, hello_digest_start, rx_digest_start;
  logic [31:0] hello_digest_word, in_digest, in_digest_next;
  logic [2:0]  rx_take, rx_digest_dwords;
  logic        hello_enable;
  assign take = hello_enable ? {2'd0, hello_take} : rx_take;
  crc32c_beat in_crc (
      .state((hello_enable ? hello_digest_start : rx_digest_start) ? 32'hffff_ffff : in_digest),
      .data(hello_enable ? {96'd0, hello_digest_word} : words),
      .dwords(hello_enable ? {2'd0, hello_take} : rx_digest_dwords),
      .next(in_digest_next)
  );
  always_ff @(posedge clk) in_digest <= in_digest_next;

  // ---- The handshake ----
  logic hello_result, hello_good, hello_by_peer, hello_member;
  logic [15:0] hello_code;
  greeting_t hello, say;
  tunnel_hello_rx hello_rx (
      .clk,
      .enable(hello_enable),
      .upstream(cfg_upstream),
      .word(words[0]),
      .ready(count != 4'd0),
      .take(hello_take),
      .digest_start(hello_digest_start),
      .digest_word(hello_digest_word),
      .digest(~in_digest),
      .result(hello_result),
      .good(hello_good),
      .by_peer(hello_by_peer),
      .code(hello_code),
      .greeting(hello),
      .member(hello_member)
  );

  logic say_start, say_drop, say_busy, say_valid, push_ready, digests;
  logic say_digest_start, say_digest_add;
  logic [7:0] say_kind;
  logic [15:0] say_code;
  logic [31:0] say_word, say_digest_word, out_digest, out_digest_next;
  tunnel_hello_tx hello_tx (
      .clk,
      .drop(say_drop || rst),
      .start(say_start),
      .busy(say_busy),
      .kind(say_kind),
      .code(say_code),
      .greeting(say),
      .name(cfg_name),
      .name_length(cfg_name_length),
      .digests,
      .digest_start(say_digest_start),
      .digest_add(say_digest_add),
      .digest_word(say_digest_word),
      .digest(~out_digest),
      .valid(say_valid),
      .word(say_word),
      .ready(push_ready)
  );

  // ---- Frames in ----
  logic is_open, rx_begun, rx_bad, frame, well_formed, overdrawn, accept;
  logic write, store_full, commit, undo;
  lane_t write_lane;
  logic [127:0] write_data;
  lane_t lane;
  logic [10:0] dwords;
  logic [8:0] units;
  logic [7:0] frame_kind;
  logic [15:0] frame_length;
  logic [31:0] frame_sequence, frame_acknowledge;
  logic [5:0][31:0] frame_body;
  tunnel_rx #(.MaxPayload(MaxPayload)) rx (
      .clk,
      .enable(is_open),
      .digests,
      .words(words),
      .count,
      .take(rx_take),
      .begun(rx_begun),
      .digest_start(rx_digest_start),
      .digest_dwords(rx_digest_dwords),
      .digest(~in_digest),
      .write,
      .write_lane,
      .write_data,
      .store_full,
      .commit,
      .undo,
      .lane,
      .dwords,
      .units,
      .frame,
      .kind(frame_kind),
      .length(frame_length),
      .sequence_(frame_sequence),
      .acknowledge(frame_acknowledge),
      .body(frame_body),
      .well_formed,
      .overdrawn,
      .accept,
      .bad(rx_bad)
  );

  logic link, store_empty, store_working, put_reset, passed;
  lane_t passed_lane;
  logic [8:0] passed_units;
  tunnel_store #(
      .MainBeats(MainBeats),
      .MainItems(MainItems),
      .SideBeats(SideBeats),
      .SideItems(SideItems)
  ) store (
      .clk,
      .rst,
      .flush(!link),
      .empty(store_empty),
      .write,
      .write_lane,
      .write_data,
      .full(store_full),
      .commit,
      .undo,
      .lane,
      .dwords,
      .units,
      .put_reset,
      .m_tvalid(m_tlp_tvalid),
      .m_tready(m_tlp_tready),
      .m_tdata(m_tlp_tdata),
      .m_tkeep(m_tlp_tkeep),
      .m_tlast(m_tlp_tlast),
      .m_np_ok(m_tlp_np_ok),
      .reset_valid,
      .reset_ready,
      .passed,
      .passed_lane,
      .passed_units,
      .working(store_working)
  );

  logic link_start, arrive, arrive_drop, arrive_fits, credit_taken, credit_along, credit_segment;
  limits_t granted, peer_limits;
  tunnel_grants grants (
      .clk,
      .link_start,
      .window,
      .arrive,
      .lane,
      .units,
      .fits(arrive_fits),
      .drop(arrive_drop),
      .passed,
      .passed_lane,
      .passed_units,
      .announce(credit_taken),
      .limits(granted),
      .company(credit_along),
      .segment(credit_segment)
  );

  // ---- TLPs out ----
  logic allow, withdrawn, has_place, put, keep_write, reset_todo, reset_numbered, admit_empty;
  logic tlp_dropped, admit_working;
  kept_t put_kept, kept;
  logic [127:0] keep_data, replay_data;
  logic [15:0] free_beats;
  logic [10:0] payload_max;
  logic [$clog2(Waiting):0] np_room;
  assign s_tlp_np_room = 8'(np_room);
  tunnel_admit #(.Waiting(Waiting)) admit (
      .clk,
      .rst,
      .link_up(link),
      .flush(!link),
      .empty(admit_empty),
      .s_tvalid(s_tlp_tvalid),
      .s_tready(s_tlp_tready),
      .s_tdata(s_tlp_tdata),
      .s_tlast(s_tlp_tlast),
      .np_room,
      .payload_max,
      .link_start,
      .allow,
      .limits(peer_limits),
      .withdrawn,
      .has_place,
      .free_beats,
      .put,
      .kept(put_kept),
      .write(keep_write),
      .write_data(keep_data),
      .put_reset(reset_todo),
      .reset_done(reset_numbered),
      .dropped(tlp_dropped),
      .working(admit_working)
  );

  logic forget, resume, waits, load, step, sent, there;
  logic [31:0] acknowledge, oldest, next, cursor;
  tunnel_replay #(.Frames(ReplayFrames), .Beats(ReplayBeats)) replay (
      .clk,
      .link_start,
      .resume,
      .forget,
      .acknowledge,
      .put,
      .put_kept,
      .write(keep_write),
      .write_data(keep_data),
      .has_place,
      .free_beats,
      .oldest,
      .next,
      .cursor,
      .waits,
      .kept,
      .load,
      .step,
      .sent,
      .there,
      .data(replay_data)
  );

  logic tx_enable, tx_hold, tx_idle, tx_heads, credit_due, ping_due, ping_taken, pong_due;
  logic pong_taken, stamped, tx_digest_start, tx_digest_add, tx_push;
  logic [63:0] pong_sent_at, pong_received_at, received_at;
  logic [31:0] expected;
  logic [127:0] tx_data;
  logic [2:0] tx_dwords;
  tunnel_tx tx (
      .clk,
      .enable(tx_enable),
      .hold(tx_hold),
      .idle(tx_idle),
      .now,
      .digests,
      .stamped,
      .cursor,
      .expected,
      .received_at,
      .heads(tx_heads),
      .waits,
      .kept,
      .upstream(cfg_upstream),
      .load,
      .step,
      .sent,
      .there,
      .data(replay_data),
      .credit_due,
      .credit_along,
      .limits(granted),
      .credit_taken,
      .ping_due,
      .ping_taken,
      .pong_due,
      .pong_sent_at,
      .pong_received_at,
      .pong_taken,
      .digest_start(tx_digest_start),
      .digest_add(tx_digest_add),
      .digest(~out_digest),
      .push(tx_push),
      .push_data(tx_data),
      .push_dwords(tx_dwords),
      .push_ready
  );

  // ---- Bytes out ----
  logic push;
  logic [127:0] push_data;
  logic [2:0] push_dwords;
  assign push = tx_push || say_valid;
  assign push_data = say_valid ? {96'd0, say_word} : tx_data;
  assign push_dwords = say_valid ? 3'd1 : tx_dwords;
  assign push_ready = !m_net_tvalid || m_net_tready;
  logic digest_starts, digest_adds;
  assign digest_starts = say_busy ? 1'b0 : tx_digest_start;
  assign digest_adds = say_busy ? say_digest_add : tx_digest_add;
  crc32c_beat out_crc (
      .state(digest_starts ? 32'hffff_ffff : out_digest),
      .data(say_busy ? {96'd0, say_digest_word} : tx_data),
      .dwords(digest_adds ? (say_busy ? 3'd1 : tx_dwords) : 3'd0),
      .next(out_digest_next)
  );
  always_ff @(posedge clk) begin
    out_digest <= say_digest_start ? 32'hffff_ffff : out_digest_next;
    if (push_ready) begin
      m_net_tvalid <= push;
      m_net_tdata <= push_data;
      for (int word = 0; word < 4; word++) begin
        m_net_tkeep[4*word+:4] <= {4{3'(word) < push_dwords}};
      end
    end
    // Bytes that a connection did not take are lost with it.
    if (rst || !net_connected) m_net_tvalid <= 1'b0;
    if (tlp_dropped) dropped <= dropped + 32'd1;
    if (rst) dropped <= 32'd0;
  end

  logic session_working;
  tunnel_session session (
      .clk,
      .rst,
      .now,
      .upstream(cfg_upstream),
      .run,
      .cfg_digests,
      .cfg_stamps,
      .cfg_instance,
      .cfg_hold_ms,
      .cfg_silence_ms,
      .cfg_handshake,
      .cfg_ping,
      .cfg_acknowledge,
      .cfg_redial_min,
      .cfg_redial_max,
      .entropy,
      .max_payload(16'(MaxPayload)),
      .window,
      .net_dial,
      .net_failed,
      .net_connected,
      .net_close,
      .net_ready,
      .net_discard,
      .net_heard(s_net_tvalid && s_net_tready),
      .net_partial,
      .net_empty(!m_net_tvalid),
      .hello_enable,
      .hello_result,
      .hello_good,
      .hello_by_peer,
      .hello_code,
      .hello,
      .hello_member,
      .say_start,
      .say_drop,
      .say_kind,
      .say_code,
      .say,
      .say_busy,
      .is_open,
      .tx_enable,
      .rx_begun,
      .rx_bad,
      .frame,
      .frame_kind,
      .frame_length,
      .frame_sequence,
      .frame_acknowledge,
      .frame_body,
      .frame_fits(well_formed && !overdrawn),
      .accept,
      .link_start,
      .peer_limits,
      .allow,
      .withdrawn,
      .arrive,
      .arrive_drop,
      .arrive_fits,
      .credit_segment,
      .oldest,
      .next,
      .cursor,
      .waits,
      .forget,
      .resume,
      .acknowledge,
      .tx_hold,
      .tx_idle,
      .tx_heads,
      .credit_due,
      .credit_taken,
      .ping_due,
      .ping_taken,
      .pong_due,
      .pong_sent_at,
      .pong_received_at,
      .pong_taken,
      .expected,
      .received_at,
      .stamped,
      .digests,
      .payload_max,
      .link,
      .link_up,
      .drained(store_empty && admit_empty && !link),
      .hot_reset,
      .reset_todo,
      .reset_numbered,
      .put_reset,
      .reset_delivered(reset_valid && reset_ready),
      .round_trip,
      .resumptions,
      .stopped,
      .working(session_working),
      .wake_at
  );
  assign open = is_open;

  // Work that goes on without any input.
  logic hello_working, rx_working, tx_working;
  assign hello_working = hello_result || (hello_enable && hello_take);
  assign rx_working = rx_take != 3'd0 || frame || rx_bad;
  assign tx_working = !tx_idle || say_busy || m_net_tvalid ||
                      (is_open && (waits || credit_due || ping_due || pong_due));
  assign busy = session_working || hello_working || rx_working || tx_working ||
                store_working || admit_working;
endmodule
