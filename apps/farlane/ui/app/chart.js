// Charts over uPlot, which draws millions of points; colours are those of the page.

import { html, useEffect, useRef } from './library.js';

const { uPlot } = window;

/** The value of a colour of the page, such as --ink. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const FONT = '11px ui-sans-serif, system-ui, sans-serif';

const measure = document.createElement('canvas').getContext('2d');

/** The width of an axis that has room for its words, and `least` pixels at least. */
export function room(least) {
  return (_, words) => {
    measure.font = FONT;
    return Math.ceil(Math.max(least, ...(words ?? []).map((text) => measure.measureText(text).width + 12)));
  };
}

/** The first half of an axis: its look. */
export function axis(words, more = {}) {
  return {
    stroke: colour('--muted'), font: FONT, gap: 4, size: room(46),
    grid: { stroke: colour('--grid'), width: 1 }, ticks: { stroke: colour('--grid'), width: 1, size: 4 },
    values: (_, splits) => splits.map((value) => (value === null ? '' : words(value))), ...more,
  };
}

/** Whole powers of ten around the shown values; `usual` without any. Marks of other ranges never end. */
export function decades(low, high, usual) {
  return low > 0 ? [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 1e-9)] : usual;
}

/** What makes an axis logarithmic without a line for each digit. */
export function powersOfTen() {
  const filter = (_, splits) => splits.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6 ? value : null));
  return { filter, grid: { stroke: colour('--grid'), width: 1, filter }, ticks: { show: false } };
}

/** A line of a chart. */
export function line(label, name, more = {}) {
  const stroke = colour(name);
  return { label, stroke, width: 1.5, fill: more.filled ? `${stroke}26` : undefined, ...more, points: more.points ? { ...more.points, fill: stroke, stroke } : { show: false } };
}

/** Bars from the bounds of one bin to those of the next, for histograms. */
export function steps() {
  return uPlot.paths.stepped({ align: 1 });
}

/**
 * A chart. `make` returns uPlot's options but for the size, and is called again when the theme or
 * `of` changes; `data` are its columns.
 */
export function Chart({ make, data, height = 180, label, of, theme, onMake }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const node = place.current;
    const width = () => Math.max(120, node.clientWidth);
    const made = new uPlot({ width: width(), height, padding: [8, 20, 0, 0], ...make() }, data, node);
    plot.current = made;
    onMake?.(made);
    const resized = new ResizeObserver(() => made.setSize({ width: width(), height }));
    resized.observe(node);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [of, theme, height]);
  useEffect(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data);
  }, [data]);
  return html`<div class="chart" ref=${place} role="img" aria-label=${label}></div>`;
}
