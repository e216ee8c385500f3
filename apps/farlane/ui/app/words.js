// Numbers as people read them, each with its unit.

const THIN = '\u202f';

/** Three significant digits, or as many as `digits` says, without an exponent. */
function short(value, digits = 3) {
  if (value === 0) return '0';
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(3, digits - whole)));
}

/** A time in nanoseconds. */
export function time(ns, digits = 4) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return '–';
  const size = Math.abs(ns);
  if (size < 1e3) return `${short(ns, digits)}${THIN}ns`;
  if (size < 1e6) return `${short(ns / 1e3, digits)}${THIN}µs`;
  if (size < 1e9) return `${short(ns / 1e6, digits)}${THIN}ms`;
  return `${short(ns / 1e9, digits)}${THIN}s`;
}

/** The same for marks of an axis: no digit that says nothing. */
export function mark(ns) {
  return time(ns, 4).replace(/(\.\d*?)0+(?=\u202f)/, '$1').replace(/\.(?=\u202f)/, '');
}

/** A moment, to the microsecond. */
export function moment(ns) {
  return `${grouped((ns / 1e3).toFixed(3))}`;
}

/** Digits in groups of three. */
function grouped(text) {
  const [whole, rest] = String(text).split('.');
  const groups = whole.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
  return rest === undefined ? groups : `${groups}.${rest}`;
}

/** A number of things. */
export function count(value) {
  return value === null || value === undefined ? '–' : grouped(value);
}

/** A number with a factor: 1.2k, 3.4M; or with a unit behind: 1.2 kB/s. */
export function large(value, unit = '') {
  const size = Math.abs(value);
  const space = unit ? THIN : '';
  const tidy = (number) => String(Number(short(number)));
  if (size < 1e3) return `${size < 10 ? Number(value.toFixed(2)) : Math.round(value)}${space}${unit}`;
  if (size < 1e6) return `${tidy(value / 1e3)}${space}k${unit}`;
  if (size < 1e9) return `${tidy(value / 1e6)}${space}M${unit}`;
  return `${tidy(value / 1e9)}${space}G${unit}`;
}

/** How often something happens. */
export function often(value) {
  return `${large(value)}/s`;
}

/** Bytes, in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (value >= 1024 && at + 1 < units.length) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value % 1 === 0 ? grouped(value) : short(value)}${THIN}${units[at]}`;
}

/** Bytes a second, in decimal units, as links count. */
export function rate(value) {
  return large(value, 'B/s');
}

/** A share from 0 to 1. */
export function percent(share, digits = 1) {
  return share === null || share === undefined ? '–' : `${(share * 100).toFixed(digits)}${THIN}%`;
}

/** A difference from 0, with its sign. */
export function change(share) {
  if (share === null || share === undefined) return '–';
  const sign = share > 0 ? '+' : share < 0 ? '−' : '±';
  const size = Math.abs(share);
  const digits = size < 0.1 ? 1 : 0;
  return size >= 10 ? `${sign}${(size + 1).toFixed(0)}×` : `${sign}${(size * 100).toFixed(digits)}${THIN}%`;
}

/** A number in hexadecimal digits. */
export function hex(value, digits = 4) {
  return value === null || value === undefined ? '–' : `0x${value.toString(16).padStart(digits, '0')}`;
}

/** A time that a person has typed, such as 10us, in nanoseconds; none if it is not one. */
export function parseTime(text) {
  const found = /^\s*([\d.]+)\s*(ns|us|µs|ms|s)?\s*$/.exec(text);
  if (!found || Number.isNaN(Number(found[1]))) return null;
  const factor = { ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9 }[found[2] ?? 'ns'];
  return Math.round(Number(found[1]) * factor);
}
