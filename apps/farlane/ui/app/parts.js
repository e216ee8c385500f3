// Small parts that several views have.

import { html, useEffect, useLayoutEffect, useRef, useState } from './library.js';
import { count, percent, time } from './words.js';

/** Steps in the order in which they are taken; each has a colour of its own. */
export const STEPS = ['command capsule', 'doorbell', 'entry fetch', 'entry', 'list fetch', 'list', 'R2T', 'data',
  'data arrived', 'completion', 'interrupt', 'head doorbell'];

export function stepColour(step) {
  const at = STEPS.indexOf(step);
  return at < 0 ? 'var(--muted)' : `var(--step-${at})`;
}

/** The text in the place of a part that can't be shown. */
export function Note({ kind = 'note', children }) {
  return html`<p class=${`note ${kind}`} role=${kind === 'error' ? 'alert' : 'status'}>${children}</p>`;
}

/** The children, once there is an answer to show. */
export function Answered({ of, children }) {
  if (of.error) return html`<${Note} kind="error">${of.error}<//>`;
  if (!of.answer) return html`<div class="waiting" role="status"><span class="hidden">loading</span></div>`;
  return children(of.answer);
}

/** A part of a view with a title. */
export function Card({ title, aside, children, class: more = '' }) {
  return html`<section class=${`card ${more}`} aria-label=${title}>
    <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>
    ${children}
  </section>`;
}

/** One of a few choices. */
export function Choice({ label, value, options, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([name, text]) => html`<button type="button" aria-pressed=${String(name === value)}
      onClick=${() => onChange(name)}>${text}</button>`)}
  </div>`;
}

/** One of many choices. */
export function Select({ label, value, options, onChange }) {
  return html`<label class="field"><span>${label}</span>
    <select value=${value} aria-label=${label} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([name, text]) => html`<option value=${name} selected=${String(name) === String(value)}>${text}</option>`)}
    </select></label>`;
}

/** A text that is taken when it is left, or Enter is pressed. */
export function Input({ label, value, hint, width = 9, invalid = false, onChange, focusKey }) {
  const input = useRef(null);
  useEffect(() => {
    if (input.current) input.current.value = value ?? '';
  }, [value]);
  return html`<label class="field"><span>${label}</span>
    <input ref=${input} type="text" placeholder=${hint} style=${{ width: `${width}ch` }} aria-invalid=${String(invalid)}
      data-focus=${focusKey} spellcheck=${false} aria-label=${label} autocomplete="off" onChange=${(event) => onChange(event.target.value.trim())} /></label>`;
}

export function Check({ label, value, onChange }) {
  return html`<label class="check"><input type="checkbox" checked=${value}
    onChange=${(event) => onChange(event.target.checked)} /> ${label}</label>`;
}

/** Names and values side by side. */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value, title]) => html`<div title=${title}>
    <dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A bar that is divided as the parts say: `{ name, share, colour }`. */
export function Divided({ parts, label }) {
  return html`<div class="divided" role="img" aria-label=${label}>
    ${parts.filter((part) => part.share > 0).map((part) => html`<div key=${part.name} title=${`${part.name}: ${percent(part.share)}`}
      style=${{ flexGrow: part.share, background: part.colour }}><span>${part.share > 0.08 ? part.name : ''}</span></div>`)}
  </div>`;
}

/** The quantiles of a distribution. */
export function quantiles(times) {
  return [
    ['count', count(times.count)], ['mean', time(times.mean)], ['deviation', time(times.deviation)],
    ['median', time(times.p50)], ['p90', time(times.p90)], ['p99', time(times.p99)],
    ['p99.9', time(times.p999)], ['max', time(times.max)],
  ];
}

/** How many columns a chart over the whole page has room for, in hundreds. */
export function useColumns() {
  const measured = () => Math.min(12, Math.max(2, Math.round(document.documentElement.clientWidth / 150))) * 100;
  const [columns, setColumns] = useState(measured);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setColumns(measured()));
    observer.observe(document.documentElement);
    return () => observer.disconnect();
  }, []);
  return columns;
}

/** Does something when one of some keys is pressed outside of a field. */
export function useKeys(keys, dependencies = []) {
  // At once: a key may be pressed before the page is painted.
  useLayoutEffect(() => {
    const onKey = (event) => {
      const target = event.target;
      const types = target.matches?.('input[type=text], select, textarea');
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (types && event.key !== 'Escape') return;
      if (types) target.blur();
      const action = keys[event.key];
      if (action && action(event) !== false) event.preventDefault();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, dependencies);
}
