// Uses the page as a person does, in Chromium: each view, in both themes, at the widths of a phone and
// of a desk, and checks that no text is cut at the widths of a phone and of a small screen.
//
//   node browser.mjs URL FOLDER
//
// URL is the page of a program with three captures or more, the first of which has commands. Pictures
// go to FOLDER. PLAYWRIGHT names the folder of playwright-core, and CHROMIUM the browser. The last line
// is "passed N"; anything that is not as it should be ends the script with a status of 1.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdirSync } from 'node:fs';

const [url, folder] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(process.env.PLAYWRIGHT ?? 'playwright-core');
mkdirSync(folder, { recursive: true });

let passed = 0;
const SIZES = { desk: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
const VIEWS = ['overview', 'commands', 'distributions', 'time', 'compare', 'simulate', 'live'];

/** What of the page has no name, or too little contrast for small text (WCAG 2.2, 1.4.3 and 4.1.2). */
function faults() {
  const found = [];
  const shown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== 'hidden';
  for (const control of document.querySelectorAll('button, select, input, a[href]')) {
    const name = control.getAttribute('aria-label') || control.closest('label')?.textContent || control.textContent || control.title;
    if (shown(control) && !name?.trim()) found.push(`no name: ${control.outerHTML.slice(0, 120)}`);
  }
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return rgba(getComputedStyle(document.documentElement).backgroundColor);
  };
  for (const element of document.querySelectorAll('main *, header *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const dimmed = element.closest(':disabled, [disabled], .hidden, [aria-busy=true]');
    if (!own || !shown(element) || dimmed) continue;
    const [a, b] = [light(rgba(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${element.outerHTML.slice(0, 120)}`);
  }
  return found;
}

/** What text of the page is cut, by its own element or by one around it that does not scroll. */
function cut() {
  const found = [];
  const shown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== 'hidden' && !element.closest('.hidden, .skip');
  const note = (element, text) => found.push(`cut: "${text.trim().slice(0, 60)}" in ${element.outerHTML.slice(0, 80)}`);
  for (const input of document.querySelectorAll('input[type=text]')) {
    if (shown(input) && input.scrollWidth > input.clientWidth) note(input, input.value);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !shown(element) || element.closest('script, option, select')) continue;
    if (element.clientWidth > 0 && element.scrollWidth > element.clientWidth) note(element, node.data);
    const range = document.createRange();
    range.selectNodeContents(node);
    const text = range.getBoundingClientRect();
    for (let at = element; at !== document.body; at = at.parentElement) {
      const { overflowX } = getComputedStyle(at);
      if (overflowX === 'auto' || overflowX === 'scroll') break;
      const box = at.getBoundingClientRect();
      if (overflowX !== 'visible' && (text.right > box.right + 1 || text.left < box.left - 1)) note(element, node.data);
    }
  }
  // The words of a chart's axis begin right of the canvas's edge, unless they have no room.
  for (const canvas of document.querySelectorAll('.uplot canvas')) {
    const { data } = canvas.getContext('2d').getImageData(0, 0, 1, canvas.height);
    if (data.some((value) => value !== 0)) note(canvas, 'the words of an axis');
  }
  return found;
}

/** Nothing is cut, at the width of a phone and of a small screen. */
async function uncut(page, what) {
  const before = page.viewportSize();
  for (const width of [1280, 390]) {
    await page.setViewportSize({ ...before, width });
    await page.waitForTimeout(200);
    assert.deepEqual((await page.evaluate(cut)).slice(0, 5), [], `${what}, ${width} pixels`);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(over <= 0, `${what}, ${width} pixels: the page is ${over} pixels too wide`);
  }
  await page.setViewportSize(before);
  passed += 2;
}

async function whole(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(over <= 0, `${what}: the page is ${over} pixels too wide`);
  assert.deepEqual((await page.evaluate(faults)).slice(0, 5), [], what);
  passed += 1;
}

/** Waits until the canvas of each chart has something on it. */
async function drawn(page, least) {
  await page.waitForFunction((least) => document.querySelectorAll('.uplot canvas').length >= least, least);
  const blank = await page.evaluate(() => [...document.querySelectorAll('.uplot canvas')].filter((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return !data.some((value) => value !== 0);
  }).length);
  assert.equal(blank, 0, 'a chart is empty');
  passed += 1;
}

async function overview(page) {
  await page.getByRole('heading', { name: 'Where the time goes' }).waitFor();
  await drawn(page, 1);
  const shares = async () => (await page.locator('.ladder .row:not(.ends) > :nth-child(5)').allTextContents())
    .filter((text) => text !== '–').reduce((sum, text) => sum + parseFloat(text), 0);
  assert.ok(Math.abs((await shares()) - 100) < 0.6, 'shares add up until the completion');
  await page.getByRole('button', { name: 'until the last packet' }).click();
  await page.waitForFunction(() => location.hash.includes('until=end'));
  assert.ok(Math.abs((await shares()) - 100) < 0.6, 'shares add up until the last packet');
  await page.getByRole('link', { name: 'List these commands' }).click();
  await page.getByRole('grid', { name: 'commands' }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'Where the time goes' }).waitFor();
  passed += 3;
}

async function commands(page, isPhone) {
  const rows = page.locator('.viewport .row[data-number]');
  await rows.first().waitFor();
  await page.getByRole('button', { name: 'sort by latency' }).click();
  await page.waitForFunction(() => document.querySelector('[aria-sort=descending]')?.textContent.includes('latency'));
  await page.waitForTimeout(300);
  const times = (texts) => texts.map((text) => parseFloat(text) * { ns: 1, µs: 1e3, ms: 1e6, s: 1e9 }[text.split('\u202f')[1]]);
  const latencies = times(await page.locator('.viewport .row[data-number] .c-latency').allTextContents());
  assert.deepEqual(latencies, [...latencies].sort((a, b) => b - a), 'the longest come first');
  // The list is as long as it says: its end comes in sight, and has its rows.
  await page.locator('.viewport').evaluate((node) => { node.scrollTop = node.scrollHeight; });
  await page.waitForFunction(() => {
    const all = [...document.querySelectorAll('.viewport .row:not(.titles)')];
    const last = all[all.length - 1];
    return last?.dataset.number && last.getAttribute('aria-rowindex') === document.querySelector('[role=grid]').getAttribute('aria-rowcount');
  });
  await page.keyboard.press('Home');
  await page.waitForFunction(() => document.querySelector('.viewport').scrollTop === 0);
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.waitForFunction(() => document.querySelector('.viewport .row.active')?.getAttribute('aria-rowindex') === '2');
  await page.keyboard.press('Enter');
  const panel = page.locator('aside.command');
  await panel.locator('.waterfall .row').first().waitFor();
  const number = await panel.getAttribute('aria-label');
  const frames = panel.locator('.frames li > button');
  assert.ok((await frames.count()) > 2, 'the packets are listed');
  await frames.nth(1).click();
  await panel.locator('.hex > div').first().waitFor();
  await panel.locator('.decoded .fields > div', { hasText: 'requester' }).first().hover();
  assert.equal(await panel.locator('.hex .marked').count(), 2, 'the two bytes of the requester are marked');
  await whole(page, 'a command');
  await page.screenshot({ path: `${folder}/command-${isPhone ? 'phone' : 'desk'}-${await page.evaluate(() => document.documentElement.dataset.theme)}.png` });
  await page.keyboard.press(number === 'command 1' ? ']' : '[');
  await page.waitForFunction((number) => document.querySelector('aside.command')?.getAttribute('aria-label') !== number, number);
  await page.keyboard.press('Escape');
  await panel.waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('1x');
  await page.keyboard.press('Enter');
  await page.locator('input[aria-invalid=true]').waitFor();
  const field = page.getByRole('textbox', { name: 'queue' });
  await field.fill('0');
  await field.press('Enter');
  await page.waitForFunction(() => location.hash.includes('queue=0'));
  await page.waitForFunction(() => [...document.querySelectorAll('.viewport .row[data-number] .c-command')].every((cell) => cell.textContent.startsWith('admin')));
  passed += 9;
}

async function distributions(page) {
  await page.getByRole('heading', { name: 'Quantiles' }).waitFor();
  await drawn(page, 2);
  const over = page.locator('.u-over').first();
  await over.hover({ position: { x: 30, y: 40 } });
  await page.waitForFunction(() => document.querySelector('.reading')?.textContent.includes('commands;'));
  await page.getByRole('button', { name: 'linear' }).click();
  await page.waitForFunction(() => location.hash.includes('scale=linear'));
  await page.getByRole('combobox', { name: 'time' }).selectOption('data');
  await page.getByRole('heading', { name: /: data$/ }).waitFor();
  await drawn(page, 2);
  await page.getByLabel('within 3 σ').check();
  await page.waitForFunction(() => location.hash.includes('three_sigma=1'));
  passed += 4;
}

async function time(page, isPhone) {
  await page.getByRole('heading', { name: 'Queue depth' }).waitFor();
  await drawn(page, 5);
  const stretch = () => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split('?')[1])));
  await page.keyboard.press('+');
  await page.waitForFunction(() => location.hash.includes('from='));
  const half = await stretch();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((from) => new URLSearchParams(location.hash.split('?')[1]).get('from') > Number(from), half.from);
  await page.keyboard.press('0');
  await page.waitForFunction(() => !location.hash.includes('from='));
  if (!isPhone) {
    await drawn(page, 5);
    await page.waitForTimeout(500);
    const box = await page.locator('.u-over').first().boundingBox();
    await page.mouse.move(box.x + box.width * 0.4, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 20, { steps: 5 });
    await page.mouse.up();
    await page.waitForFunction(() => location.hash.includes('from='));
    const { from, to } = await stretch();
    await page.mouse.move(box.x + box.width / 2, box.y + 20);
    await page.mouse.wheel(0, -200);
    await page.waitForFunction((length) => {
      const values = new URLSearchParams(location.hash.split('?')[1]);
      return values.get('to') - values.get('from') < length;
    }, to - from);
    await page.mouse.dblclick(box.x + box.width / 2, box.y + 20);
    await page.waitForFunction(() => !location.hash.includes('from='));
    passed += 3;
  }
  passed += 3;
}

async function compare(page) {
  await page.getByRole('heading', { name: 'Medians of each step' }).waitFor();
  await drawn(page, 2);
  assert.ok((await page.locator('.compare abbr').count()) > 0, 'some differences are more than chance');
  await page.locator('.compare').getByRole('button', { name: 'entry fetch' }).first().click();
  await page.getByRole('heading', { name: /: entry fetch$/ }).waitFor();
  const titles = () => page.locator('.compare thead th.number').allTextContents();
  const before = await titles();
  await page.getByRole('button', { name: 'exchange the two' }).click();
  await page.waitForFunction((first) => document.querySelectorAll('.compare thead th.number')[1].textContent === first, before[0]);
  passed += 4;
}

async function simulate(page) {
  await page.getByRole('combobox', { name: 'scenario' }).selectOption({ label: 'tcp-1g' });
  const median = async () => {
    await page.waitForFunction(() => document.querySelector('.results[aria-busy=false] .tasks tbody tr'));
    return page.locator('.tasks tbody tr').first().locator('td').first().textContent();
  };
  const before = await median();
  const rate = page.getByRole('textbox', { name: 'hop 1 rate' });
  await rate.fill('100Mbit/s');
  await rate.press('Enter');
  await page.waitForFunction((before) => document.querySelector('.results[aria-busy=false] .tasks tbody td')?.textContent !== before, before);
  assert.ok(Number.parseFloat(await median()) > Number.parseFloat(before), 'a slower link takes longer');
  assert.ok((await page.locator('.tasks td.longer').count()) > 0, 'the change is shown');
  await page.getByRole('button', { name: 'all as they were' }).click();
  await page.waitForFunction((before) => document.querySelector('.results[aria-busy=false] .tasks tbody td')?.textContent === before, before);
  await rate.fill('fast');
  await rate.press('Enter');
  await page.getByRole('alert').waitFor();
  await page.getByRole('button', { name: 'all as they were' }).click();
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await page.getByRole('slider', { name: /rate/ }).first().press('ArrowLeft');
  await page.waitForFunction(() => document.querySelector('.value.changed'));
  await median();
  assert.ok((await page.locator('.places .track i').count()) > 5, 'the critical path is drawn');
  passed += 6;
}

/** Each scenario's labels and places are whole. */
async function scenarios(page) {
  const choice = page.getByRole('combobox', { name: 'scenario' });
  const names = await choice.locator('option').allTextContents();
  for (const label of names) {
    await choice.selectOption({ label });
    await page.waitForFunction(() => document.querySelector('.results[aria-busy=false] .tasks tbody tr'));
    await page.waitForTimeout(200);
    await uncut(page, `simulate ${label}`);
  }
}

/** Each column of a list of commands is reached by scrolling. */
async function columns(page) {
  const viewport = page.locator('.viewport');
  await viewport.evaluate((node) => { node.scrollLeft = node.scrollWidth; });
  const seen = await viewport.evaluate((node) => {
    const all = [...node.querySelectorAll('.titles > div')];
    const last = Math.max(...all.map((cell) => cell.getBoundingClientRect().right));
    return [all.filter((cell) => cell.getClientRects().length > 0).length, last - node.getBoundingClientRect().right];
  });
  assert.equal(seen[0], 12, 'no column is left out');
  assert.ok(seen[1] <= 12, `the last column is ${seen[1]} pixels out of reach`);
  await viewport.evaluate((node) => { node.scrollLeft = 0; });
  passed += 2;
}

async function live(page) {
  await page.getByRole('heading', { name: /Far ends|No daemon/ }).waitFor();
  await page.getByRole('button', { name: 'pause' }).click();
  await page.getByRole('button', { name: 'go on' }).waitFor();
  passed += 1;
}

const ACTIONS = { overview, commands, distributions, time, compare, simulate, live };

async function keys(page) {
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  for (const [at, view] of VIEWS.entries()) {
    await page.keyboard.press(String(at + 1));
    await page.waitForFunction((view) => document.querySelector('main')?.className === view, view);
  }
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const before = await theme();
  await page.keyboard.press('t');
  assert.notEqual(await theme(), before);
  await page.reload();
  assert.notEqual(await theme(), before, 'the choice stays');
  await page.keyboard.press('t');
  assert.equal(await theme(), before);
  // Each part can be reached, and is seen when it is.
  await page.goto(`${url}#/overview`);
  await page.getByRole('heading', { name: 'Where the time goes' }).waitFor();
  for (let turn = 0; turn < 12; turn += 1) {
    await page.keyboard.press('Tab');
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(outline, 'none', `focus is not seen: ${await page.evaluate(() => document.activeElement.outerHTML.slice(0, 100))}`);
  }
  passed += 5;
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const bad = [];
try {
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const colorScheme of ['light', 'dark']) {
      const context = await browser.newContext({ viewport, colorScheme, hasTouch: size === 'phone' });
      context.setDefaultTimeout(30_000);
      const page = await context.newPage();
      const where = `${size}, ${colorScheme}`;
      // What the simulation refuses is told by a status, which Chromium reports as an error of the page.
      page.on('console', (message) => {
        const isRefusal = message.text().includes('status of 400') && message.location().url.includes('/api/scenarios/');
        // This test reads canvases, which Chromium would like to know before.
        const isOurs = message.text().includes('willReadFrequently');
        if (['error', 'warning'].includes(message.type()) && !isRefusal && !isOurs) bad.push(`${where}: ${message.text()}`);
      });
      page.on('pageerror', (error) => bad.push(`${where}: ${error.stack}`));
      page.on('request', (request) => {
        if (!request.url().startsWith(url) && !request.url().startsWith('data:')) bad.push(`${where}: asked ${request.url()}`);
      });
      await page.goto(url);
      await page.waitForFunction(() => document.querySelector('main')?.className === 'overview');
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), colorScheme);
      for (const view of VIEWS) {
        await page.goto(`${url}#/${view}`);
        await page.waitForFunction((view) => document.querySelector('main')?.className === view, view);
        await ACTIONS[view](page, size === 'phone');
        await page.goto(`${url}#/${view}`);
        await page.waitForTimeout(400);
        await page.waitForFunction(() => !document.querySelector('.waiting, [aria-busy=true]'));
        await whole(page, `${view}, ${where}`);
        if (colorScheme === 'light') {
          await uncut(page, view);
          if (view === 'simulate') await scenarios(page);
          if (view === 'commands') await columns(page);
        }
        await page.screenshot({ path: `${folder}/${view}-${size}-${colorScheme}.png`, fullPage: view !== 'commands' });
      }
      await keys(page);
      // A finger does what a mouse does.
      if (size === 'phone') {
        await page.goto(`${url}#/commands`);
        await page.locator('.viewport .row[data-number]').first().tap();
        await page.locator('aside.command .waterfall').waitFor();
        await page.getByRole('button', { name: 'close' }).tap();
        await page.locator('aside.command').waitFor({ state: 'detached' });
        passed += 1;
      }
      await context.close();
    }
  }
  assert.deepEqual(bad, []);
} catch (error) {
  console.error([...bad, error.stack].join('\n'));
  process.exitCode = 1;
} finally {
  await browser.close();
}
if (!process.exitCode) console.log(`passed ${passed}`);
