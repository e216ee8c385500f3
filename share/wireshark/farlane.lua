-- Wireshark and tshark: dissectors of Farlane's captures of PCI Express packets, and of the tunnel
-- protocol over TCP. Farlane's docs/trace.md and pure/tunnel/protocol.md describe both formats.

-- PCI Express transaction-layer packets (PCI Express Base Specification 4.0, 2.2).

local tlp = Proto("pcie.tlp", "PCI Express Transaction Layer Packet")

local ROUTING = {
    [0] = "to root complex", "by address", "by ID", "broadcast", "local", "gathered to root complex",
}
local STATUS = { [0] = "SC", "UR", "CRS", [4] = "CA" }
local ADDRESS_TYPE = { [0] = "untranslated", "translation request", "translated", "reserved" }
local MESSAGE = {
    [0x00] = "Unlock", [0x10] = "LTR", [0x12] = "OBFF", [0x14] = "PM_Active_State_Nak",
    [0x18] = "PM_PME", [0x19] = "PME_Turn_Off", [0x1b] = "PME_TO_Ack",
    [0x20] = "Assert_INTA", [0x21] = "Assert_INTB", [0x22] = "Assert_INTC", [0x23] = "Assert_INTD",
    [0x24] = "Deassert_INTA", [0x25] = "Deassert_INTB", [0x26] = "Deassert_INTC",
    [0x27] = "Deassert_INTD", [0x30] = "ERR_COR", [0x31] = "ERR_NONFATAL", [0x33] = "ERR_FATAL",
    [0x50] = "Set_Slot_Power_Limit", [0x52] = "PTM_Request", [0x53] = "PTM_Response",
    [0x7e] = "Vendor_Defined_0", [0x7f] = "Vendor_Defined_1",
}

local t = {
    prefix = ProtoField.uint32("pcie.tlp.prefix", "TLP prefix", base.HEX),
    type = ProtoField.string("pcie.tlp.type", "Type"),
    fmt_type = ProtoField.uint8("pcie.tlp.fmt_type", "Fmt and Type", base.HEX),
    tc = ProtoField.uint8("pcie.tlp.tc", "Traffic class"),
    ido = ProtoField.bool("pcie.tlp.ido", "ID-based ordering"),
    ln = ProtoField.bool("pcie.tlp.ln", "Lightweight notification"),
    th = ProtoField.bool("pcie.tlp.th", "TLP processing hint"),
    td = ProtoField.bool("pcie.tlp.td", "TLP digest"),
    ep = ProtoField.bool("pcie.tlp.ep", "Poisoned"),
    ro = ProtoField.bool("pcie.tlp.ro", "Relaxed ordering"),
    ns = ProtoField.bool("pcie.tlp.ns", "No snoop"),
    at = ProtoField.uint8("pcie.tlp.at", "Address type", base.DEC, ADDRESS_TYPE),
    length = ProtoField.uint16("pcie.tlp.length", "Length (DW)"),
    requester = ProtoField.string("pcie.tlp.requester", "Requester ID"),
    completer = ProtoField.string("pcie.tlp.completer", "Completer ID"),
    target = ProtoField.string("pcie.tlp.target", "Target"),
    tag = ProtoField.uint16("pcie.tlp.tag", "Tag", base.HEX),
    first_be = ProtoField.uint8("pcie.tlp.first_be", "First DW byte enables", base.HEX),
    last_be = ProtoField.uint8("pcie.tlp.last_be", "Last DW byte enables", base.HEX),
    address = ProtoField.uint64("pcie.tlp.address", "Address", base.HEX),
    bytes = ProtoField.uint32("pcie.tlp.bytes", "Bytes from first to last enabled"),
    register = ProtoField.uint16("pcie.tlp.register", "Register", base.HEX),
    message = ProtoField.uint8("pcie.tlp.message", "Message code", base.HEX, MESSAGE),
    routing = ProtoField.uint8("pcie.tlp.routing", "Routing", base.DEC, ROUTING),
    message_body = ProtoField.uint64("pcie.tlp.message_body", "Third and fourth DW", base.HEX),
    status = ProtoField.uint8("pcie.tlp.status", "Completion status", base.DEC, STATUS),
    bcm = ProtoField.bool("pcie.tlp.bcm", "Byte count modified"),
    byte_count = ProtoField.uint16("pcie.tlp.byte_count", "Byte count"),
    lower_address = ProtoField.uint8("pcie.tlp.lower_address", "Lower address", base.HEX),
    payload = ProtoField.bytes("pcie.tlp.payload", "Payload"),
    payload_length = ProtoField.uint32("pcie.tlp.payload_length", "Payload length (bytes)"),
    ecrc = ProtoField.uint32("pcie.tlp.ecrc", "ECRC", base.HEX),
    summary = ProtoField.string("pcie.tlp.summary", "Summary"),
}
tlp.fields = {}
for _, field in pairs(t) do
    table.insert(tlp.fields, field)
end
local malformed = ProtoExpert.new(
    "pcie.tlp.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
tlp.experts = { malformed }

-- Names by the low five bits of the first byte: without data, with data.
local NAMES = {
    [0x00] = { "MRd", "MWr" }, [0x01] = { "MRdLk" }, [0x02] = { "IORd", "IOWr" },
    [0x04] = { "CfgRd0", "CfgWr0" }, [0x05] = { "CfgRd1", "CfgWr1" },
    [0x0a] = { "Cpl", "CplD" }, [0x0b] = { "CplLk", "CplDLk" },
    [0x0c] = { nil, "FetchAdd" }, [0x0d] = { nil, "Swap" }, [0x0e] = { nil, "CAS" },
}

-- Whether a name has a header of four double words only, of three only, or of either length.
local function is_header_known(name, kind, wide)
    if kind >= 0x10 then
        return wide
    elseif kind >= 0x02 and kind <= 0x0b then
        return not wide
    end
    return name ~= nil
end

local function id(bits)
    return string.format("%02x:%02x.%d", bit32.rshift(bits, 8), bit32.band(bit32.rshift(bits, 3), 31),
        bit32.band(bits, 7))
end

-- The first and the last enabled byte of a request, counted from its first double word.
local function span(length, first, last)
    if first == 0 and (length == 1 or last == 0) then
        return 0, 0
    end
    local from, to = 0, 0
    while bit32.extract(first, from) == 0 and from < 3 do
        from = from + 1
    end
    local enables = length == 1 and first or last
    for at = 0, 3 do
        if bit32.extract(enables, at) == 1 then
            to = at + 1
        end
    end
    return from, (length - 1) * 4 + to
end

local function hex64(value)
    local text = value:tohex():gsub("^0+", "")
    return "0x" .. (text == "" and "0" or text)
end

local function unusual(first)
    local text = ""
    local class = bit32.extract(first, 20, 3)
    if class ~= 0 then
        text = text .. " TC" .. class
    end
    for _, flag in ipairs({ { 13, "RO" }, { 12, "NS" }, { 18, "IDO" }, { 16, "TH" }, { 17, "LN" },
        { 14, "poisoned" } }) do
        if bit32.extract(first, flag[1]) == 1 then
            text = text .. " " .. flag[2]
        end
    end
    local address_type = bit32.extract(first, 10, 2)
    if address_type == 3 then
        text = text .. " AT 3"
    elseif address_type ~= 0 then
        text = text .. " " .. ADDRESS_TYPE[address_type]
    end
    return text
end

-- A request's requester and tag; returns both as text.
local function transaction(tree, header, first, at)
    local requester = id(header(at, 2):uint())
    local tag = bit32.bor(header(at + 2, 1):uint(), bit32.lshift(bit32.extract(first, 19), 8),
        bit32.lshift(bit32.extract(first, 23), 9))
    tree:add(t.requester, header(at, 2), requester)
    tree:add(t.tag, header(at + 2, 1), tag)
    return requester, string.format("0x%02x", tag)
end

local function enables(tree, header)
    local both = header(7, 1):uint()
    tree:add(t.last_be, header(7, 1), bit32.rshift(both, 4))
    tree:add(t.first_be, header(7, 1), bit32.band(both, 15))
    return bit32.band(both, 15), bit32.rshift(both, 4)
end

local function memory(tree, header, name, first, length)
    local requester, tag = transaction(tree, header, first, 4)
    local first_be, last_be = enables(tree, header)
    local wide = header:len() == 16
    local high = wide and header(8, 4):uint() or 0
    local low = bit32.band(header(wide and 12 or 8, 4):uint(), 0xfffffffc)
    -- The two low bits are a hint where there is one.
    local has_hint = bit32.extract(first, 16) == 1
    local from, to = span(length, first_be, last_be)
    if has_hint and name == "MRd" then
        -- The byte enables of a read with a hint are a steering tag.
        from, to = 0, length * 4
    end
    if name == "FetchAdd" or name == "Swap" or name == "CAS" then
        from, to = 0, length * 4
    end
    local address = UInt64.new(low, high)
    tree:add(t.address, header(8), address)
    tree:add(t.bytes, header(0, 4), to - from)
    local text = name .. " " .. requester
    if name ~= "MWr" then
        text = text .. " tag " .. tag
    end
    return string.format("%s %s..+%d", text, hex64(address + from), to - from)
end

local function io(tree, header, name, first)
    local requester, tag = transaction(tree, header, first, 4)
    local first_be = enables(tree, header)
    local from, to = span(1, first_be, 0)
    local address = bit32.band(header(8, 4):uint(), 0xfffffffc)
    tree:add(t.address, header(8, 4), UInt64.new(address, 0))
    tree:add(t.bytes, header(7, 1), to - from)
    return string.format("%s %s tag %s 0x%x..+%d", name, requester, tag, address + from, to - from)
end

local function configuration(tree, header, name, first)
    local requester, tag = transaction(tree, header, first, 4)
    local first_be = enables(tree, header)
    local target = id(header(8, 2):uint())
    local register = bit32.band(header(10, 2):uint(), 0xffc)
    local from, to = span(1, first_be, 0)
    tree:add(t.target, header(8, 2), target)
    tree:add(t.register, header(10, 2), register)
    tree:add(t.bytes, header(7, 1), to - from)
    return string.format("%s %s tag %s %s 0x%03x..+%d", name, requester, tag, target, register + from,
        to - from)
end

local function message(tree, header, name, first, length)
    local requester = transaction(tree, header, first, 4)
    local code = header(7, 1):uint()
    local routing = bit32.band(header(0, 1):uint(), 7)
    local body = header(8, 8):uint64()
    tree:add(t.message, header(7, 1))
    tree:add(t.routing, header(0, 1), routing)
    tree:add(t.message_body, header(8, 8))
    local text = string.format("%s %s %s %s", name, requester,
        MESSAGE[code] or string.format("code 0x%02x", code), ROUTING[routing] or "routing " .. routing)
    if body ~= UInt64.new(0, 0) then
        text = text .. " 0x" .. body:tohex()
    end
    return name == "MsgD" and string.format("%s %d B", text, length * 4) or text
end

local function completion(tree, header, name, first, length)
    local completer = id(header(4, 2):uint())
    tree:add(t.completer, header(4, 2), completer)
    local requester, tag = transaction(tree, header, first, 8)
    local rest = header(6, 2):uint()
    local status, modified = bit32.rshift(rest, 13), bit32.extract(rest, 12)
    -- 0 means 4096.
    local count = bit32.band(rest, 0xfff)
    count = count == 0 and 4096 or count
    local lower = bit32.band(header(11, 1):uint(), 0x7f)
    tree:add(t.status, header(6, 1), status)
    tree:add(t.bcm, header(6, 1), modified)
    tree:add(t.byte_count, header(6, 2), count)
    tree:add(t.lower_address, header(11, 1), lower)
    local text = string.format("%s %s to %s tag %s %s", name, completer, requester, tag,
        STATUS[status] or "status " .. status)
    if name == "CplD" or name == "CplDLk" then
        text = string.format("%s %d B at 0x%02x, %d B to come", text, length * 4, lower, count)
    end
    return modified == 1 and text .. " BCM" or text
end

local function first_double_word(tree, header, name, first, length)
    tree:add(t.fmt_type, header(0, 1))
    tree:add(t.type, header(0, 1), name)
    tree:add(t.tc, header(1, 1), bit32.extract(first, 20, 3))
    for _, flag in ipairs({ { t.ido, 18 }, { t.ln, 17 }, { t.th, 16 }, { t.td, 15 }, { t.ep, 14 },
        { t.ro, 13 }, { t.ns, 12 } }) do
        tree:add(flag[1], header(flag[2] > 15 and 1 or 2, 1), bit32.extract(first, flag[2]))
    end
    tree:add(t.at, header(2, 1), bit32.extract(first, 10, 2))
    tree:add(t.length, header(2, 2), length)
end

-- Dissects one packet, from its prefixes to its digest. Returns its summary.
local function dissect_tlp(buffer, pinfo, root)
    local tree = root:add(tlp, buffer())
    local function bad(why)
        tree:add_proto_expert_info(malformed, "Malformed packet: " .. why)
        return "malformed packet: " .. why
    end
    local at, prefixes = 0, ""
    while at + 4 <= buffer:len() and bit32.rshift(buffer(at, 1):uint(), 5) == 4 do
        tree:add(t.prefix, buffer(at, 4))
        prefixes = prefixes .. string.format(" prefix 0x%08x", buffer(at, 4):uint())
        at = at + 4
    end
    if at + 12 > buffer:len() then
        return bad("it ends within its header")
    end
    local code, first = buffer(at, 1):uint(), buffer(at, 4):uint()
    local kind, has_data = bit32.band(code, 0x1f), bit32.btest(code, 0x40)
    local wide = bit32.btest(code, 0x20)
    local names = kind >= 0x10 and kind < 0x18 and { "Msg", "MsgD" } or NAMES[kind] or {}
    local name = names[has_data and 2 or 1]
    if name == nil or code >= 0x80 or not is_header_known(name, kind, wide) then
        return bad(string.format("Fmt and Type 0x%02x are of no packet", code))
    end
    local header_length = wide and 16 or 12
    if at + header_length > buffer:len() then
        return bad("it ends within its header")
    end
    local header = buffer(at, header_length):tvb()
    local length = bit32.band(first, 0x3ff)
    if length == 0 and (has_data or kind <= 0x05) then
        length = 1024
    end
    first_double_word(tree, header, name, first, length)
    local dissect = kind >= 0x10 and message or kind == 0x02 and io or kind <= 0x01 and memory
        or kind <= 0x05 and configuration or kind <= 0x0b and completion or memory
    local text = dissect(tree, header, name, first, length) .. unusual(first) .. prefixes
    at = at + header_length
    local payload = has_data and length * 4 or 0
    if has_data then
        local there = math.min(payload, buffer:len() - at)
        tree:add(t.payload_length, buffer(at, there), payload):set_generated()
        if there > 0 then
            tree:add(t.payload, buffer(at, there))
        end
        if there < payload then
            -- A capture may keep the first bytes alone.
            tree:add_proto_expert_info(malformed, "The payload is cut")
        end
        at = at + there
    end
    if bit32.extract(first, 15) == 1 and at + 4 <= buffer:len() then
        tree:add(t.ecrc, buffer(at, 4))
    end
    tree:add(t.summary, buffer(), text):set_generated()
    tree:append_text(": " .. text)
    return text
end

function tlp.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "TLP"
    pinfo.cols.info = dissect_tlp(buffer, pinfo, root)
    return buffer:len()
end

-- Captures: link type USER0, a header before each packet.

local capture = Proto("farlane.capture", "Farlane capture")
local c = {
    version = ProtoField.uint8("farlane.capture.version", "Version"),
    length = ProtoField.uint8("farlane.capture.length", "Length of this header"),
    direction = ProtoField.uint8("farlane.capture.direction", "Direction", base.DEC,
        { [0] = "host to device", "device to host" }),
    port = ProtoField.uint8("farlane.capture.port", "Port"),
    error = ProtoField.uint32("farlane.capture.error", "Error bound of the time stamp (ns)"),
}
capture.fields = { c.version, c.length, c.direction, c.port, c.error }

function capture.dissector(buffer, pinfo, root)
    if buffer:len() < 8 or buffer(0, 1):uint() ~= 1 or buffer(1, 1):uint() < 8
        or buffer(1, 1):uint() > buffer:len() then
        return 0
    end
    local length = buffer(1, 1):uint()
    local tree = root:add(capture, buffer(0, length))
    tree:add(c.version, buffer(0, 1))
    tree:add(c.length, buffer(1, 1))
    tree:add(c.direction, buffer(2, 1))
    tree:add(c.port, buffer(3, 1))
    tree:add(c.error, buffer(4, 4))
    local is_up = buffer(2, 1):uint() == 1
    pinfo.cols.src = is_up and "device" or "host"
    pinfo.cols.dst = is_up and "host" or "device"
    pinfo.cols.protocol = "TLP"
    if length < buffer:len() then
        pinfo.cols.info = dissect_tlp(buffer(length):tvb(), pinfo, root)
    end
    return buffer:len()
end

DissectorTable.get("wtap_encap"):add((wtap_encaps or wtap).USER0, capture)

-- The tunnel protocol, version 2.

local tunnel = Proto("farlane", "Farlane tunnel")

local KIND = {
    [0x01] = "Hello", [0x02] = "Welcome", [0x03] = "Refuse", [0x04] = "Close", [0x10] = "TLP",
    [0x11] = "Reset", [0x12] = "Credit", [0x13] = "Ahead", [0x14] = "Forget", [0x15] = "Tally",
    [0x18] = "Registers", [0x20] = "Ping", [0x21] = "Pong",
}
local OPTION = {
    "Limits", "Credits", "Name", "Vendor", "Device", "Stamps", "Secret", "Ahead", "Tally", "Registers",
    "Strands", "Member", "Digests",
}
local CREDITS = { "Posted headers", "Posted data", "Non-posted headers", "Non-posted data",
    "Completion headers", "Completion data" }
local TALLY = { "Reads answered from pieces", "Reads sent to the host", "Bytes answered from pieces",
    "Bytes that arrived ahead", "Bytes dropped unread", "Pieces dropped for want of room" }
local REFUSE = {
    "no Hello or Welcome of this protocol", "no version in common", "both ends have the same role",
    "malformed", "unknown mandatory option", "in use", "not now", "the handshake took too long",
    "the peer may not do this", "damaged on its way",
}
local CLOSE = { "the application ended the session", "the peer broke the protocol",
    "more was queued than may be", "another session takes the place of this one" }

local f = {
    kind = ProtoField.uint8("farlane.kind", "Kind", base.HEX, KIND),
    flags = ProtoField.uint8("farlane.flags", "Flags", base.HEX),
    stamped = ProtoField.bool("farlane.stamped", "Stamped", 8, nil, 0x01),
    length = ProtoField.uint16("farlane.length", "Length of the body"),
    sequence = ProtoField.uint32("farlane.sequence", "Sequence"),
    acknowledge = ProtoField.uint32("farlane.acknowledge", "Acknowledge"),
    digest = ProtoField.uint32("farlane.digest", "Digest (CRC32C)", base.HEX),
    magic = ProtoField.bytes("farlane.magic", "Magic"),
    version_low = ProtoField.uint16("farlane.version.low", "Lowest version"),
    version_high = ProtoField.uint16("farlane.version.high", "Highest version"),
    role = ProtoField.uint8("farlane.role", "Role", base.DEC, { "upstream", "downstream" }),
    outcome = ProtoField.uint8("farlane.outcome", "Outcome", base.DEC,
        { [0] = "asked", "a new session", "the session is resumed" }),
    session = ProtoField.uint64("farlane.session", "Session", base.HEX),
    instance = ProtoField.bytes("farlane.instance", "Instance"),
    oldest = ProtoField.uint32("farlane.oldest", "Oldest"),
    check = ProtoField.uint32("farlane.check", "Check (CRC32C)", base.HEX),
    option = ProtoField.uint16("farlane.option", "Option", base.DEC, OPTION, 0x7fff),
    option_must = ProtoField.bool("farlane.option.must_know", "Must be known", 16, nil, 0x8000),
    option_length = ProtoField.uint16("farlane.option.length", "Length of the value"),
    option_value = ProtoField.bytes("farlane.option.value", "Value"),
    option_text = ProtoField.string("farlane.option.text", "Text"),
    max_payload = ProtoField.uint16("farlane.max_payload", "Max payload"),
    hold = ProtoField.uint32("farlane.hold", "Hold (ms)"),
    silence = ProtoField.uint32("farlane.silence", "Silence (ms)"),
    refuse = ProtoField.uint16("farlane.refuse", "Refused because", base.DEC, REFUSE),
    close = ProtoField.uint16("farlane.close", "Closed because", base.DEC, CLOSE),
    text = ProtoField.string("farlane.text", "Text"),
    sent = ProtoField.uint64("farlane.sent", "Sent (ns)"),
    received = ProtoField.uint64("farlane.received", "Received (ns)"),
    reset = ProtoField.uint32("farlane.reset", "Reset", base.DEC, { "request", "done" }),
    credit = ProtoField.uint32("farlane.credit", "Credit"),
    ping_sent = ProtoField.uint64("farlane.ping.sent", "Ping sent (ns)"),
    ping_arrived = ProtoField.uint64("farlane.ping.arrived", "Ping arrived (ns)"),
    pong_sent = ProtoField.uint64("farlane.pong.sent", "Pong sent (ns)"),
    address = ProtoField.uint64("farlane.ahead.address", "Address", base.HEX),
    key = ProtoField.uint32("farlane.ahead.key", "Key", base.HEX),
    completer = ProtoField.string("farlane.ahead.completer", "Completer"),
    payload = ProtoField.uint8("farlane.ahead.payload", "Longest payload (128 bytes times 2 to the power)"),
    once = ProtoField.bool("farlane.ahead.once", "Once", 8, nil, 0x01),
    memory = ProtoField.bytes("farlane.ahead.memory", "Memory"),
    tally = ProtoField.uint64("farlane.tally", "Tally"),
    register_function = ProtoField.uint8("farlane.registers.function", "Function"),
    register_space = ProtoField.uint8("farlane.registers.space", "Space", base.DEC,
        { [0] = "configuration", "BAR 0", "BAR 1", "BAR 2", "BAR 3", "BAR 4", "BAR 5" }),
    register_offset = ProtoField.uint16("farlane.registers.offset", "Offset", base.HEX),
    register_value = ProtoField.uint32("farlane.registers.value", "Reads as", base.HEX),
    register_writable = ProtoField.uint32("farlane.registers.writable", "Writable bits", base.HEX),
}
tunnel.fields = {}
for _, field in pairs(f) do
    table.insert(tunnel.fields, field)
end
local broken = ProtoExpert.new(
    "farlane.malformed", "Malformed frame", expert.group.MALFORMED, expert.severity.ERROR)
tunnel.experts = { broken }
tunnel.prefs.digests = Pref.bool("Frames have digests where the handshake was not captured", true,
    "Farlane uses digests over TCP without keys")

local HEADER, MAGIC = 12, "4641524c414e450a"
local tcp_stream = Field.new("tcp.stream")
-- Of each connection whose Welcome was seen: whether its frames have digests.
local has_digests = {}

function tunnel.init()
    has_digests = {}
end

local function digest_length(kind)
    if kind <= 0x03 then
        return 0
    end
    local known = has_digests[tcp_stream().value]
    if known == nil then
        known = tunnel.prefs.digests
    end
    return known and 4 or 0
end

local function credits(tree, body)
    for index, name in ipairs(CREDITS) do
        local range = body((index - 1) * 4, 4)
        tree:add(f.credit, range):set_text(name .. ": " .. range:uint())
    end
end

local function option(tree, body, at)
    local kind, length = bit32.band(body(at, 2):uint(), 0x7fff), body(at + 2, 2):uint()
    local whole = math.min(4 + math.ceil(length / 4) * 4, body:len() - at)
    local branch = tree:add(f.option, body(at, 2))
    branch:set_len(whole)
    branch:add(f.option_must, body(at, 2))
    branch:add(f.option_length, body(at + 2, 2))
    if at + 4 + length > body:len() then
        branch:add_proto_expert_info(broken, "The option is longer than the frame")
        return kind, whole
    end
    if length > 0 then
        local value = body(at + 4, length)
        branch:add(f.option_value, value)
        if kind == 1 and length == 12 then
            branch:add(f.max_payload, value(0, 2))
            branch:add(f.hold, value(4, 4))
            branch:add(f.silence, value(8, 4))
        elseif kind == 2 and length == 24 then
            credits(branch, value)
        elseif kind >= 3 and kind <= 5 then
            branch:add(f.option_text, value)
        end
    end
    return kind, whole
end

local function handshake(tree, body, kind)
    if body:len() < 48 then
        return tree:add_proto_expert_info(broken, "The frame is shorter than 48 bytes")
    end
    tree:add(f.magic, body(0, 8))
    tree:add(f.version_low, body(8, 2))
    tree:add(f.version_high, body(10, 2))
    tree:add(f.role, body(12, 1))
    tree:add(f.outcome, body(13, 1))
    tree:add(f.session, body(16, 8))
    tree:add(f.instance, body(24, 16))
    tree:add(f.oldest, body(40, 4))
    tree:add(f.check, body(44, 4))
    local at, digests = 48, false
    while at + 4 <= body:len() do
        local which, length = option(tree, body, at)
        digests = digests or which == 13
        at = at + length
    end
    if kind == 0x02 then
        has_digests[tcp_stream().value] = digests
    end
end

local function ending(tree, body, field)
    tree:add(field, body(0, 2))
    local length = math.min(body(2, 2):uint(), body:len() - 4)
    if length > 0 then
        tree:add(f.text, body(4, length))
    end
end

local function registers(tree, body)
    tree:add(f.register_function, body(0, 1))
    tree:add(f.register_space, body(1, 1))
    tree:add(f.register_offset, body(2, 2))
    for at = 4, body:len() - 8, 8 do
        tree:add(f.register_value, body(at, 4))
        tree:add(f.register_writable, body(at + 4, 4))
    end
end

local function ahead(tree, body)
    tree:add(f.address, body(0, 8))
    tree:add(f.key, body(8, 4))
    tree:add(f.completer, body(12, 2), id(body(12, 2):uint()))
    tree:add(f.payload, body(14, 1))
    tree:add(f.once, body(15, 1))
    tree:add(f.memory, body(16))
end

-- The least length of each kind's body.
local LEAST = {
    [0x01] = 48, [0x02] = 48, [0x03] = 4, [0x04] = 4, [0x10] = 12, [0x11] = 4, [0x12] = 24, [0x13] = 20,
    [0x14] = 4, [0x15] = 48, [0x18] = 12, [0x20] = 8, [0x21] = 24,
}

-- Dissects the body of a frame. Returns what the Info column says of it.
local function dissect_body(kind, flags, body, pinfo, tree, root)
    if kind <= 0x02 then
        handshake(tree, body, kind)
    elseif kind <= 0x04 then
        ending(tree, body, kind == 0x03 and f.refuse or f.close)
    elseif kind == 0x10 then
        local at = 0
        if bit32.btest(flags, 1) and body:len() >= 28 then
            tree:add(f.sent, body(0, 8))
            tree:add(f.received, body(8, 8))
            at = 16
        end
        return dissect_tlp(body(at):tvb(), pinfo, root)
    elseif kind == 0x11 then
        tree:add(f.reset, body(0, 4))
    elseif kind == 0x12 then
        credits(tree, body)
    elseif kind == 0x13 then
        ahead(tree, body)
    elseif kind == 0x14 then
        for at = 0, body:len() - 4, 4 do
            tree:add(f.key, body(at, 4))
        end
    elseif kind == 0x15 then
        for index, name in ipairs(TALLY) do
            local range = body((index - 1) * 8, 8)
            tree:add(f.tally, range):set_text(name .. ": " .. tostring(range:uint64()))
        end
    elseif kind == 0x18 then
        registers(tree, body)
    elseif kind == 0x20 then
        tree:add(f.ping_sent, body(0, 8))
    elseif kind == 0x21 then
        tree:add(f.ping_sent, body(0, 8))
        tree:add(f.ping_arrived, body(8, 8))
        tree:add(f.pong_sent, body(16, 8))
    end
    return KIND[kind]
end

local function frame_length(buffer, pinfo, offset)
    return HEADER + buffer(offset + 2, 2):uint() + digest_length(buffer(offset, 1):uint())
end

local function dissect_frame(buffer, pinfo, root)
    local kind, flags, length = buffer(0, 1):uint(), buffer(1, 1):uint(), buffer(2, 2):uint()
    local tree = root:add(tunnel, buffer(), "Farlane tunnel: " .. (KIND[kind] or "unknown kind"))
    tree:add(f.kind, buffer(0, 1))
    tree:add(f.flags, buffer(1, 1)):add(f.stamped, buffer(1, 1))
    tree:add(f.length, buffer(2, 2))
    tree:add(f.sequence, buffer(4, 4))
    tree:add(f.acknowledge, buffer(8, 4))
    local text
    if KIND[kind] == nil or length < LEAST[kind] or length % 4 ~= 0 then
        tree:add_proto_expert_info(broken, "Its kind is unknown or its length impossible")
        text = "malformed frame"
    else
        text = dissect_body(kind, flags, buffer(HEADER, length), pinfo, tree, root)
    end
    if buffer:len() == HEADER + length + 4 then
        tree:add(f.digest, buffer(HEADER + length, 4))
    end
    local so_far = tostring(pinfo.cols.info)
    pinfo.cols.info = so_far == "" and text or so_far .. "; " .. text
    return buffer:len()
end

function tunnel.dissector(buffer, pinfo, root)
    if buffer:len() == 0 or KIND[buffer(0, 1):uint()] == nil then
        return 0
    end
    pinfo.cols.protocol = "Farlane"
    pinfo.cols.info = ""
    dissect_tcp_pdus(buffer, root, HEADER, frame_length, dissect_frame)
    return buffer:len()
end

-- A connection that begins with a Hello is ours on every port.
tunnel:register_heuristic("tcp", function(buffer, pinfo, root)
    if buffer:len() < HEADER + 8 or buffer(0, 1):uint() > 2
        or tostring(buffer(HEADER, 8):bytes()):lower() ~= MAGIC then
        return false
    end
    pinfo.conversation = tunnel
    tunnel.dissector(buffer, pinfo, root)
    return true
end)

DissectorTable.get("tcp.port"):add(4430, tunnel)
