// The list of commands: sorted and filtered by the server, which sends the rows that are in sight.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from './library.js';
import { ask, useAnswer } from './api.js';
import { Check, Input, Note, Select, useKeys } from './parts.js';
import { bytes, count, hex, moment, parseTime, time } from './words.js';
import { Command } from './command.js';

/** The height of a row in pixels, as the style has it. */
const ROW = 28;
/** Rows of one answer. */
const PAGE = 100;
/** Browsers make nothing higher than some 30 million pixels. Beyond this, a pixel is more than a row. */
const HEIGHT_MAX = 8e6;

const dash = (value) => value ?? '–';

/** Columns: a key for sorting, a title, a unit, the shown value, how wide a list must be to show it (0 to 2), and a description. */
const COLUMNS = [
  ['number', '#', '', (row) => count(row.number), 0],
  ['begun', 'begun', 'µs', (row) => moment(row.begun_ns), 2],
  ['kind', 'command', '', (row) => row.command, 0],
  ['queue', 'queue', '', (row) => dash(row.queue), 1],
  [null, 'id', '', (row) => hex(row.id), 2],
  ['lba', 'LBA', '', (row) => count(row.lba), 0],
  [null, 'blocks', '', (row) => count(row.blocks), 1],
  ['bytes', 'data', '', (row) => bytes(row.bytes), 1],
  ['packets', 'packets', '', (row) => count(row.packets), 2],
  ['latency', 'latency', '', (row) => time(row.latency_ns), 0, 'until the completion'],
  ['whole', 'whole', '', (row) => time(row.whole_ns), 2, 'until the last packet'],
  [null, 'status', '', (row) => (row.status === null ? '–' : row.failed ? hex(row.status, 3) : 'ok'), 1],
];

/** Pages of rows that were asked for; `rowAt` has those that came. */
function usePages(path, values) {
  const key = `${path}?${JSON.stringify(values)}`;
  const cache = useRef({ key: null, pages: new Map(), total: null, error: null });
  const [, redraw] = useState(0);
  if (cache.current.key !== key) cache.current = { key, pages: new Map(), total: cache.current.total, error: null };
  const want = useCallback((page) => {
    const mine = cache.current;
    if (mine.pages.has(page)) return;
    mine.pages.set(page, null);
    ask(path, { ...values, offset: page * PAGE, limit: PAGE }).then(
      (answer) => {
        mine.pages.set(page, answer.rows);
        mine.total = answer.matched;
        if (cache.current === mine) redraw((turn) => turn + 1);
      },
      (error) => {
        mine.error = error.message;
        if (cache.current === mine) redraw((turn) => turn + 1);
      },
    );
  }, [key]);
  return {
    want, total: cache.current.total, error: cache.current.error,
    rowAt: (index) => cache.current.pages.get(Math.floor(index / PAGE))?.[index % PAGE],
  };
}

function List({ number, query, sort, descending, selected, longest, onSort, onOpen, onTotal }) {
  // Three powers of ten below the longest, nothing is left of a bar.
  const bar = (ns) => Math.max(0, Math.min(1, 1 + Math.log10(Math.max(ns, 1) / longest) / 3)) * 100;
  const viewport = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const pages = usePages(`captures/${number}/commands`, { ...query, sort, descending });
  const total = pages.total ?? 0;
  const whole = Math.min(total * ROW, HEIGHT_MAX);
  const visible = Math.ceil(height / ROW) + 1;
  // Where all rows have room, a pixel is a pixel.
  const span = Math.max(1, whole - height);
  const first = whole < HEIGHT_MAX ? Math.floor(top / ROW) : Math.round((top / span) * Math.max(0, total - visible + 1));
  const start = Math.max(0, Math.min(first, total - 1));
  const offset = whole < HEIGHT_MAX ? start * ROW : top;
  useEffect(() => {
    pages.want(Math.floor(start / PAGE));
    pages.want(Math.floor(Math.min(start + visible, Math.max(0, total - 1)) / PAGE));
  }, [start, visible, total, pages.want]);
  useEffect(() => onTotal(pages.total), [pages.total]);
  useLayoutEffect(() => {
    const node = viewport.current;
    const look = () => setHeight(node.clientHeight);
    const observer = new ResizeObserver(look);
    observer.observe(node);
    look();
    return () => observer.disconnect();
  }, []);
  const [active, setActive] = useState(0);
  // Keys may come faster than the list is drawn.
  const place = useRef(0);
  const activate = (index) => {
    place.current = index;
    setActive(index);
  };
  const move = (by) => {
    const next = Math.max(0, Math.min(total - 1, place.current + by));
    activate(next);
    const node = viewport.current;
    // Enter is then for the row, and not for the button that was pressed before.
    node.focus({ preventScroll: true });
    if (whole < HEIGHT_MAX) {
      const above = next * ROW;
      if (above < node.scrollTop) node.scrollTop = above;
      if (above + 2 * ROW > node.scrollTop + node.clientHeight) node.scrollTop = above + 2 * ROW - node.clientHeight;
    } else {
      node.scrollTop = (next / Math.max(1, total - 1)) * span;
    }
  };
  useKeys({
    j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
    PageDown: () => move(visible - 2), PageUp: () => move(2 - visible), Home: () => move(-total), End: () => move(total),
    Enter: (event) => {
      if (event.target.matches?.('button, a')) return false;
      const row = pages.rowAt(place.current);
      return row ? onOpen(row.number) : false;
    },
  }, [active, total, visible, onOpen, pages.rowAt]);
  const rows = [];
  for (let index = start; index < Math.min(start + visible, total); index += 1) rows.push([index, pages.rowAt(index)]);
  return html`<div class="list" role="grid" aria-label="commands" aria-rowcount=${total}>
    <div class="viewport" ref=${viewport} tabindex="0" aria-label="rows" onScroll=${(event) => setTop(event.target.scrollTop)}>
    <div class="row titles" role="row">${COLUMNS.map(([key, title, unit, , width, about]) => html`<div role="columnheader" class=${`c-${title.replace('#', 'number')} w-${width}`} title=${about}
      aria-sort=${key && key === sort ? (descending ? 'descending' : 'ascending') : undefined}>
      ${key ? html`<button type="button" aria-label=${`sort by ${title}`} onClick=${() => onSort(key)}>${key === sort && html`<i aria-hidden="true">${descending ? '↓' : '↑'}</i>`}${title}${unit && html` <small>${unit}</small>`}</button>` : html`<span>${title}</span>`}</div>`)}</div>
      <div style=${{ height: `${whole}px`, position: 'relative' }}>
        <div style=${{ transform: `translateY(${offset}px)` }}>
          ${rows.map(([index, row]) => html`<div key=${index} role="row" aria-rowindex=${index + 1} data-number=${row?.number}
            class=${`row ${index === active ? 'active' : ''} ${row && row.number === selected ? 'selected' : ''} ${row?.failed ? 'failed' : ''}`}
            onClick=${() => { activate(index); if (row) onOpen(row.number); }}>
            ${COLUMNS.map(([key, title, , show, width]) => html`<div role="gridcell" class=${`c-${title.replace('#', 'number')} w-${width}`}>${row ? show(row) : html`<i class="blank"></i>`}${row && key === 'latency' && html`<u style=${{ width: `${bar(row.latency_ns)}%` }}></u>`}</div>`)}
          </div>`)}
        </div>
      </div>
    </div>
    ${pages.error && html`<${Note} kind="error">${pages.error}<//>`}
    ${pages.total === 0 && html`<${Note}>No command is as wanted.<//>`}
  </div>`;
}

export function Commands({ number, values, set, capture }) {
  const kinds = useAnswer(`captures/${number}/kinds`);
  const [total, setTotal] = useState(null);
  const { kind, queue, lba, longer, failed, from, to } = values;
  const sort = values.sort ?? 'begun';
  const descending = values.descending === '1';
  const selected = values.command ? Number(values.command) : null;
  const query = { kind, queue, lba, longer, failed: failed === '1', from, to };
  const longest = Math.max(1, ...(kinds.answer?.kinds ?? []).map((one) => one.latency_ns.max));
  const whole = (text) => (/^\d*$/.test(text) ? text : null);
  const [wrong, setWrong] = useState({});
  /** Takes the typed text, or marks it as wrong. */
  const take = (name, parse) => (text) => {
    const value = text === '' ? '' : parse(text);
    setWrong({ ...wrong, [name]: value === null });
    if (value !== null) set({ [name]: value, command: null });
  };
  const onOpen = (command) => set({ command }, selected !== null);
  const onSort = (key) => set({ sort: key, descending: key === sort ? (descending ? null : '1') : key === 'latency' || key === 'whole' ? '1' : null });
  const options = [['', 'all'], ...(kinds.answer?.kinds ?? []).map((one, at) => [at, `${one.command} (${count(one.count)})`])];
  return html`
    <form class="filters" role="search" aria-label="filter" onSubmit=${(event) => event.preventDefault()}>
      <${Select} label="command" value=${kind ?? ''} options=${options} onChange=${(kind) => set({ kind, command: null })} />
      <${Input} label="queue" value=${queue} hint="all" width=${6} focusKey="/" invalid=${wrong.queue} onChange=${take('queue', whole)} />
      <${Input} label="has LBA" value=${lba} hint="any" width=${10} invalid=${wrong.lba} onChange=${take('lba', whole)} />
      <${Input} label="longer than" value=${longer ? time(Number(longer)) : ''} hint="10us" width=${9} invalid=${wrong.longer} onChange=${take('longer', parseTime)} />
      <${Check} label="failed" value=${failed === '1'} onChange=${(on) => set({ failed: on ? '1' : null, command: null })} />
      ${(from || to) && html`<button type="button" class="chip" onClick=${() => set({ from: null, to: null })}>begun from ${time(Number(from ?? 0))} to ${time(Number(to ?? capture.summary.span_ns))} ×</button>`}
      <output>${total === null ? '' : `${count(total)} of ${count(capture.summary.commands)}`}</output>
    </form>
    <div class=${`split ${selected ? 'open' : ''}`}>
      <${List} number=${number} query=${query} sort=${sort} descending=${descending} selected=${selected} longest=${longest} onSort=${onSort} onOpen=${onOpen} onTotal=${setTotal} />
      ${selected && html`<${Command} key=${selected} number=${number} command=${selected} count=${capture.summary.commands}
        onClose=${() => set({ command: null })} onOpen=${onOpen} />`}
    </div>`;
}
