// One command: its steps in time, its packets, and the bytes of one of them.

import { html, useEffect, useRef, useState } from './library.js';
import { useAnswer } from './api.js';
import { Answered, Facts, Note, stepColour, useKeys } from './parts.js';
import { bytes, count, hex, mark, percent, time } from './words.js';

/** Round times for an axis: 1, 2 or 5 times a power of ten, four to eight of them. */
function marks(whole) {
  if (whole <= 0) return [0];
  const power = 10 ** Math.floor(Math.log10(whole / 4));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => whole / size <= 6) ?? whole;
  return Array.from({ length: Math.floor(whole / step) + 1 }, (_, at) => at * step);
}

/** The steps as bars: pale from the end of the step before, full from its first packet to its last. */
function Waterfall({ of }) {
  const whole = Math.max(1, of.whole_ns);
  const x = (ns) => `${(ns / whole) * 100}%`;
  const ticks = marks(whole);
  const ticksOf = new Map();
  for (const frame of of.frames) {
    const at = frame.at_ns - of.begun_ns;
    ticksOf.set(frame.step, [...(ticksOf.get(frame.step) ?? []), at]);
  }
  return html`<div class="waterfall" role="table" aria-label="steps in time">
    <div class="scale" aria-hidden="true"><span></span><div>${ticks.map((tick) => html`<i style=${{ left: x(tick) }}><b>${mark(tick)}</b></i>`)}</div><span></span></div>
    ${of.steps.map((step) => html`<div class="row" role="row" key=${step.step}>
      <span role="rowheader"><i class=${`arrow ${step.way}`} aria-label=${step.way === 'down' ? 'to the device' : 'to the host'}>${step.way === 'down' ? '→' : '←'}</i>${step.step}</span>
      <div role="cell" title=${`${step.step}: ${time(step.ns)} after the step before; ${count(step.packets)} packets from ${time(step.first_ns)} to ${time(step.last_ns)}`}>
        ${ticks.map((tick) => html`<s style=${{ left: x(tick) }}></s>`)}
        <u style=${{ left: x(step.last_ns - step.ns), width: x(step.ns), background: stepColour(step.step) }}></u>
        <i style=${{ left: x(step.first_ns), width: x(step.last_ns - step.first_ns), background: stepColour(step.step) }}></i>
        ${(step.last_ns - step.first_ns > whole / 50 ? ticksOf.get(step.step) ?? [] : []).slice(0, 128).map((at) => html`<em style=${{ left: x(at) }}></em>`)}
      </div>
      <span class="number" role="cell">${time(step.ns)}<small>${percent(step.ns / whole)}</small></span>
    </div>`)}
  </div>`;
}

/** Bytes as rows of sixteen, with those of a field marked. */
function Hex({ text, field }) {
  const rows = [];
  const all = text.match(/../g) ?? [];
  const isMarked = (at) => field && at >= field[0] && at < field[1];
  for (let at = 0; at < all.length; at += 16) {
    const row = all.slice(at, at + 16);
    const letters = row.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : '·';
    });
    rows.push(html`<div key=${at}><b>${at.toString(16).padStart(4, '0')}</b><span>${row.map((byte, place) => html`<i class=${isMarked(at + place) ? 'marked' : ''}>${byte}</i>`)}</span><code>${letters.join('')}</code></div>`);
  }
  return html`<div class="hex" tabindex="0" role="img" aria-label=${`${all.length} bytes in hexadecimal`}>${rows}</div>`;
}

function Frame({ number, frame, id, admin }) {
  const answer = useAnswer(`captures/${number}/frames/${frame.number}`, { step: frame.step, id, admin });
  const [field, setField] = useState(null);
  return html`<div class="frame"><${Answered} of=${answer}>${(of) => html`
    ${of.meaning && html`<div class="meaning"><h4>${of.meaning.title}</h4><dl class="fields">${of.meaning.rows.map((row) => html`<div><dt>${row.name}</dt><dd>${row.value}</dd></div>`)}</dl></div>`}
    <div class="decoded"><h4>header</h4><dl class="fields">${of.fields.map((one) => html`<div tabindex=${one.bytes ? 0 : undefined} class=${field && one.bytes === field ? 'marked' : ''}
      onMouseEnter=${() => setField(one.bytes)} onFocus=${() => setField(one.bytes)} onClick=${() => setField(one.bytes)}><dt>${one.name}</dt><dd>${one.value}</dd></div>`)}</dl></div>
    <div class="raw"><h4>bytes</h4><${Hex} text=${of.hex} field=${field} />${of.hidden_bytes > 0 && html`<small>${count(of.hidden_bytes)} further bytes</small>`}</div>`}<//></div>`;
}

/** The packets of the command; each opens to its fields and bytes. */
function Frames({ number, of, from, setFrom }) {
  const [open, setOpen] = useState(null);
  if (!of.frames_known) return html`<${Note}>The packets of this command are not known.<//>`;
  const page = of.frames.length;
  return html`<div class="frames"><h3>Packets <small>${count(of.frames_known)}</small></h3>
    <ol>${of.frames.map((frame) => {
      const key = `${frame.number} ${frame.step}`;
      return html`<li key=${key}>
      <button type="button" aria-expanded=${String(open === key)} onClick=${() => setOpen(open === key ? null : key)}>
        <i class="dot" style=${{ background: stepColour(frame.step) }} title=${frame.step}></i>
        <span class="number">${time(frame.at_ns - of.begun_ns)}</span>
        <span class=${`arrow ${frame.direction}`} aria-label=${frame.direction === 'up' ? 'to the host' : 'to the device'}>${frame.direction === 'up' ? '←' : '→'}</span>
        <span class="text">${frame.text}</span><small>${frame.step}</small>
      </button>
      ${open === key && html`<${Frame} number=${number} frame=${frame} id=${of.id} admin=${of.queue === 0} />`}</li>`;
    })}</ol>
    ${of.frames_known > page && html`<p class="pages"><button type="button" disabled=${from === 0} onClick=${() => setFrom(Math.max(0, from - 512))}>before</button>
      ${count(from + 1)} to ${count(from + page)} of ${count(of.frames_known)}
      <button type="button" disabled=${from + page >= of.frames_known} onClick=${() => setFrom(from + page)}>after</button></p>`}
  </div>`;
}

export function Command({ number, command, count: all, onClose, onOpen }) {
  const [from, setFrom] = useState(0);
  const answer = useAnswer(`captures/${number}/commands/${command}`, { packets_from: from || null });
  const panel = useRef(null);
  useEffect(() => {
    if (matchMedia('(max-width: 1099px)').matches) panel.current?.focus();
  }, []);
  const previous = () => command > 1 && onOpen(command - 1);
  const next = () => command < all && onOpen(command + 1);
  useKeys({ '[': previous, ']': next, Escape: onClose }, [command, all, onClose]);
  return html`<aside class="command" ref=${panel} tabindex="-1" aria-label=${`command ${command}`}>
    <header><h2>Command ${count(command)}</h2>
      <button type="button" class="icon" aria-label="previous command" title="previous ([)" disabled=${command <= 1} onClick=${previous}>‹</button>
      <button type="button" class="icon" aria-label="next command" title="next (])" disabled=${command >= all} onClick=${next}>›</button>
      <button type="button" class="icon" aria-label="close" title="close (Esc)" onClick=${onClose}>×</button></header>
    <${Answered} of=${answer}>${(of) => html`
      <p class="what"><b>${of.command}</b>${of.queue !== null ? html` ${hex(of.id)} of queue ${of.queue}` : ' (inferred)'}${of.nsid !== null && `, namespace ${of.nsid}`}${of.lba !== null && `, LBA ${count(of.lba)}`}${of.blocks !== null && `, ${count(of.blocks)} blocks`}</p>
      <${Facts} rows=${[['completed after', time(of.latency_ns)], ['done after', time(of.whole_ns)], ['data', bytes(of.bytes)],
        ['packets', count(of.packets)], ['begun', time(of.begun_ns, 7)], of.status !== null && ['status', of.failed ? hex(of.status, 3) : 'success']]} />
      <${Waterfall} of=${of} />
      <${Frames} number=${number} of=${of} from=${from} setFrom=${setFrom} />`}<//>
  </aside>`;
}
