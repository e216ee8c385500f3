// The page: its head, its views, and the address that names the view.

import { html, render, useCallback, useEffect, useMemo, useState } from './library.js';
import { ask } from './api.js';
import { Note, useKeys } from './parts.js';
import { bytes } from './words.js';
import { Overview } from './overview.js';
import { Commands } from './commands.js';
import { Distributions } from './distributions.js';
import { Time } from './time.js';
import { Compare } from './compare.js';
import { Simulate } from './simulate.js';
import { Live } from './live.js';

/** Views: a name in the address, a title, what shows it, and whether it is of one capture. */
const VIEWS = [
  ['overview', 'Overview', Overview, true],
  ['commands', 'Commands', Commands, true],
  ['distributions', 'Distributions', Distributions, true],
  ['time', 'Over time', Time, true],
  ['compare', 'Compare', Compare, false],
  ['simulate', 'Simulate', Simulate, false],
  ['live', 'Live', Live, false],
];

const THEMES = ['system', 'light', 'dark'];

/** What the address says: a view, and values. */
function read() {
  const [view, values] = location.hash.replace(/^#\/?/, '').split('?');
  return { view, values: Object.fromEntries(new URLSearchParams(values ?? '')) };
}

function write(view, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const text = new URLSearchParams(kept).toString();
  return `#/${view}${text ? `?${text}` : ''}`;
}

function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const onChange = () => setRoute(read());
    window.addEventListener('hashchange', onChange);
    return () => window.removeEventListener('hashchange', onChange);
  }, []);
  /** Shows another view; `replace` leaves no step back. */
  const go = useCallback((view, values = {}, replace = false) => {
    const hash = write(view, values);
    if (replace) history.replaceState(null, '', hash);
    else history.pushState(null, '', hash);
    setRoute(read());
  }, []);
  return [route, go];
}

/** The captures, asked for again until all are read. */
function useCaptures() {
  const [state, setState] = useState({ captures: null, error: null });
  useEffect(() => {
    let timer;
    let over = false;
    const look = async () => {
      try {
        const { captures } = await ask('captures');
        if (over) return;
        setState({ captures, error: null });
        if (captures.some((capture) => capture.state === 'reading')) timer = setTimeout(look, 300);
      } catch (error) {
        if (over) return;
        setState((last) => ({ ...last, error: error.message }));
        timer = setTimeout(look, 2000);
      }
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  return state;
}

function useTheme() {
  const stored = () => {
    try {
      return localStorage.getItem('theme');
    } catch {
      return null;
    }
  };
  const [choice, setChoice] = useState(() => (THEMES.includes(stored()) ? stored() : 'system'));
  const [dark, setDark] = useState(() => matchMedia('(prefers-color-scheme: dark)').matches);
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)');
    const onChange = () => setDark(query.matches);
    query.addEventListener('change', onChange);
    return () => query.removeEventListener('change', onChange);
  }, []);
  const theme = choice === 'system' ? (dark ? 'dark' : 'light') : choice;
  useMemo(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const next = () => {
    // The first step away from the system's choice is the other one.
    const chosen = theme === 'dark' ? 'light' : 'dark';
    setChoice(chosen);
    try {
      localStorage.setItem('theme', chosen);
    } catch {
      // The choice lasts as long as the page.
    }
  };
  return [theme, next];
}

const KEYS = [
  ['1 … 7', 'show a view'],
  ['/', 'go to the first filter'],
  ['j, k', 'next and previous row'],
  ['Enter', 'open the row'],
  ['[, ]', 'previous and next command'],
  ['Esc', 'close, or leave a field'],
  ['+, −', 'zoom in time'],
  ['←, →', 'move in time'],
  ['0', 'show all of the time'],
  ['t', 'light or dark'],
  ['?', 'show this list'],
];

function Help({ onClose }) {
  return html`<div class="veil" onClick=${(event) => event.target === event.currentTarget && onClose()}>
    <div class="dialog" role="dialog" aria-modal="true" aria-label="Keys">
      <header><h2>Keys</h2><button type="button" class="icon" aria-label="close" ref=${(node) => node?.focus()} onClick=${onClose}>×</button></header>
      <dl class="keys">${KEYS.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    </div></div>`;
}

/** What stands in the place of a capture that can't be shown. */
function Without({ capture, captures }) {
  if (!captures.length) {
    return html`<div class="empty"><h2>No capture was named</h2>
      <p>End this program and name one: <code>farlane observe ui FILE</code>. Each command that attaches to a far end writes one
      with <code>--capture FILE</code>, and so does <code>farlane model sim SCENARIO --capture FILE.pcapng</code>.</p>
      <p>Meanwhile, <a href="#/simulate">scenarios can be played</a>, and <a href="#/live">daemons watched</a>.</p></div>`;
  }
  if (capture.state === 'failed') return html`<${Note} kind="error">${capture.why}<//>`;
  const share = capture.file_bytes ? capture.read_bytes / capture.file_bytes : 0;
  return html`<div class="empty"><h2>Reading ${capture.name}</h2>
    <progress max="1" value=${share} aria-label="bytes read"></progress>
    <p>${bytes(capture.read_bytes)} of ${bytes(capture.file_bytes)}</p></div>`;
}

function Page() {
  const [route, go] = useRoute();
  const [theme, switchTheme] = useTheme();
  const [helps, setHelps] = useState(false);
  const { captures, error } = useCaptures();
  const first = captures && !captures.length ? 'simulate' : 'overview';
  const view = VIEWS.find(([name]) => name === route.view) ?? VIEWS.find(([name]) => name === first);
  const [name, title, View, needsCapture] = view;
  const number = Math.min(Number(route.values.capture ?? 0) || 0, Math.max(0, (captures?.length ?? 1) - 1));
  const capture = captures?.[number];
  /** Shows a view of the same capture. */
  const show = (other, values = {}, replace = false) => go(other, { capture: number || null, ...values }, replace);
  const keys = Object.fromEntries(VIEWS.map(([other], at) => [String(at + 1), () => show(other)]));
  useKeys({
    ...keys,
    t: switchTheme,
    '?': () => setHelps((helping) => !helping),
    Escape: () => (helps ? setHelps(false) : false),
    '/': () => document.querySelector('[data-focus="/"]')?.focus(),
  }, [number, helps, theme]);
  useEffect(() => {
    document.title = capture ? `${title} · ${capture.name} · Farlane` : `${title} · Farlane`;
    // On a narrow page the views are a strip.
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [title, capture?.name]);
  const shown = captures && (!needsCapture || capture?.state === 'ready');
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
    <header class="head">
      <div class="brand"><img src="icon.svg" alt="" width="20" height="20" /><b>Farlane</b></div>
      ${captures?.length > 0 && html`<label class="capture"><span class="hidden">Capture</span>
        <select value=${number} disabled=${captures.length < 2} onChange=${(event) => go(name, { capture: Number(event.target.value) || null })}>
          ${captures.map((one, at) => html`<option value=${at} selected=${at === number}>${one.name}</option>`)}
        </select></label>`}
      <nav aria-label="Views">${VIEWS.map(([other, words], at) => html`<a href=${write(other, { capture: number || null })} title=${`${words} (${at + 1})`}
        aria-current=${other === name ? 'page' : undefined}>${words}</a>`)}</nav>
      <div class="tools">
        <button type="button" class="icon" aria-label=${theme === 'dark' ? 'use light colours' : 'use dark colours'} title="Light or dark (t)" onClick=${switchTheme}>${theme === 'dark' ? '☀' : '☾'}</button>
        <button type="button" class="icon" aria-label="keys" title="Keys (?)" onClick=${() => setHelps(true)}>?</button>
      </div>
    </header>
    <main id="main" tabindex="-1" class=${name}>
      ${error && html`<${Note} kind="error">${error}<//>`}
      ${capture?.summary?.broken && needsCapture && html`<${Note} kind="warning">Read up to a fault: ${capture.summary.broken}<//>`}
      ${captures && (shown
        ? html`<${View} key=${name} capture=${capture} number=${number} captures=${captures} values=${route.values} theme=${theme}
            go=${show} set=${(values, replace = true) => show(name, { ...route.values, ...values }, replace)} />`
        : html`<${Without} capture=${capture} captures=${captures} />`)}
    </main>
    ${helps && html`<${Help} onClose=${() => setHelps(false)} />`}`;
}

render(html`<${Page} />`, document.getElementById('root'));
