// The shim of gateware/rtl/streamer/streamer.sv. The structures are those of src/ffi/streamer.rs.
#include "Vstreamer.h"
#include "shim.h"

namespace {
struct In {
    uint32_t s_tdata[4], m_mem_rdata[4], s_ssd_wdata[4];
    uint32_t s_reg_awaddr, s_reg_wdata, s_reg_araddr, s_tkeep, s_ssd_araddr, s_ssd_arlen, s_ssd_awaddr, s_ssd_wstrb;
    uint8_t rst, s_reg_awvalid, s_reg_wvalid, s_reg_bready, s_reg_arvalid, s_reg_rready;
    uint8_t s_tvalid, s_tlast, m_tready;
    uint8_t m_mem_awready, m_mem_wready, m_mem_bvalid, m_mem_bresp;
    uint8_t m_mem_arready, m_mem_rvalid, m_mem_rresp, m_mem_rlast;
    uint8_t s_ssd_arvalid, s_ssd_rready, s_ssd_awvalid, s_ssd_wvalid, s_ssd_wlast, s_ssd_bready;
    uint8_t m_bell_awready, m_bell_wready, m_bell_bvalid, s_reg_wstrb;
    uint8_t filler[5];
};

struct Out {
    uint64_t m_mem_awaddr, m_mem_araddr, m_bell_awaddr;
    uint32_t m_tdata[4], m_mem_wdata[4], s_ssd_rdata[4];
    uint32_t s_reg_rdata, m_bell_wdata;
    uint8_t s_reg_awready, s_reg_wready, s_reg_bvalid, s_reg_arready, s_reg_rvalid;
    uint8_t s_tready, m_tvalid, m_tlast;
    uint8_t m_mem_awvalid, m_mem_wvalid, m_mem_wlast, m_mem_arvalid;
    uint8_t s_ssd_arready, s_ssd_rvalid, s_ssd_rlast, s_ssd_awready, s_ssd_wready, s_ssd_bvalid;
    uint8_t m_bell_awvalid, m_bell_wvalid, changed, busy;
    uint8_t filler[2];
};

template <typename Wide>
void put(Wide& wide, const uint32_t* words) {
    for (int word = 0; word < 4; word++) wide[word] = words[word];
}

template <typename Wide>
void show(uint32_t* words, const Wide& wide) {
    for (int word = 0; word < 4; word++) words[word] = wide[word];
}
}  // namespace

using Streamer = Held<Vstreamer>;

extern "C" {
Streamer* farlane_streamer_make() { return new Streamer; }
void farlane_streamer_free(Streamer* held) { delete held; }
void farlane_streamer_sizes(size_t* sizes) {
    sizes[0] = sizeof(In);
    sizes[1] = sizeof(Out);
}
void farlane_streamer_cycle(Streamer* held, const In* in, Out* out) {
    auto& model = held->model;
    model.clk = 0;
    model.rst = in->rst;
    model.s_reg_awvalid = in->s_reg_awvalid;
    model.s_reg_awaddr = in->s_reg_awaddr;
    model.s_reg_wvalid = in->s_reg_wvalid;
    model.s_reg_wdata = in->s_reg_wdata;
    model.s_reg_wstrb = in->s_reg_wstrb;
    model.s_reg_bready = in->s_reg_bready;
    model.s_reg_arvalid = in->s_reg_arvalid;
    model.s_reg_araddr = in->s_reg_araddr;
    model.s_reg_rready = in->s_reg_rready;
    model.s_tvalid = in->s_tvalid;
    put(model.s_tdata, in->s_tdata);
    model.s_tkeep = in->s_tkeep;
    model.s_tlast = in->s_tlast;
    model.m_tready = in->m_tready;
    model.m_mem_awready = in->m_mem_awready;
    model.m_mem_wready = in->m_mem_wready;
    model.m_mem_bvalid = in->m_mem_bvalid;
    model.m_mem_bresp = in->m_mem_bresp;
    model.m_mem_arready = in->m_mem_arready;
    model.m_mem_rvalid = in->m_mem_rvalid;
    put(model.m_mem_rdata, in->m_mem_rdata);
    model.m_mem_rresp = in->m_mem_rresp;
    model.m_mem_rlast = in->m_mem_rlast;
    model.s_ssd_arvalid = in->s_ssd_arvalid;
    model.s_ssd_araddr = in->s_ssd_araddr;
    model.s_ssd_arlen = in->s_ssd_arlen;
    model.s_ssd_rready = in->s_ssd_rready;
    model.s_ssd_awvalid = in->s_ssd_awvalid;
    model.s_ssd_awaddr = in->s_ssd_awaddr;
    model.s_ssd_wvalid = in->s_ssd_wvalid;
    put(model.s_ssd_wdata, in->s_ssd_wdata);
    model.s_ssd_wstrb = in->s_ssd_wstrb;
    model.s_ssd_wlast = in->s_ssd_wlast;
    model.s_ssd_bready = in->s_ssd_bready;
    model.m_bell_awready = in->m_bell_awready;
    model.m_bell_wready = in->m_bell_wready;
    model.m_bell_bvalid = in->m_bell_bvalid;
    model.eval();

    out->m_mem_awaddr = model.m_mem_awaddr;
    out->m_mem_araddr = model.m_mem_araddr;
    out->m_bell_awaddr = model.m_bell_awaddr;
    show(out->m_tdata, model.m_tdata);
    show(out->m_mem_wdata, model.m_mem_wdata);
    show(out->s_ssd_rdata, model.s_ssd_rdata);
    out->s_reg_rdata = model.s_reg_rdata;
    out->m_bell_wdata = model.m_bell_wdata;
    out->s_reg_awready = model.s_reg_awready;
    out->s_reg_wready = model.s_reg_wready;
    out->s_reg_bvalid = model.s_reg_bvalid;
    out->s_reg_arready = model.s_reg_arready;
    out->s_reg_rvalid = model.s_reg_rvalid;
    out->s_tready = model.s_tready;
    out->m_tvalid = model.m_tvalid;
    out->m_tlast = model.m_tlast;
    out->m_mem_awvalid = model.m_mem_awvalid;
    out->m_mem_wvalid = model.m_mem_wvalid;
    out->m_mem_wlast = model.m_mem_wlast;
    out->m_mem_arvalid = model.m_mem_arvalid;
    out->s_ssd_arready = model.s_ssd_arready;
    out->s_ssd_rvalid = model.s_ssd_rvalid;
    out->s_ssd_rlast = model.s_ssd_rlast;
    out->s_ssd_awready = model.s_ssd_awready;
    out->s_ssd_wready = model.s_ssd_wready;
    out->s_ssd_bvalid = model.s_ssd_bvalid;
    out->m_bell_awvalid = model.m_bell_awvalid;
    out->m_bell_wvalid = model.m_bell_wvalid;
    out->changed = model.changed;
    out->busy = model.busy;

    model.clk = 1;
    model.eval();
}
}
