// Does the page of `catena ui` work in a browser: with the mouse and the keyboard, on a phone, in the dark, with a thousand attachments?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { requiresChromium, startChromium } from '../helpers/chromium.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, directories, type Lab, withHost } from '../helpers/netns.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { answersOf, hrefOf } from '../helpers/shown-node.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { startUi } from '../helpers/ui.ts';

const AXE = fs.readFileSync(`${ROOT}/node_modules/axe-core/axe.min.js`, 'utf8');
const DESK = { width: 1200, height: 900 };
const PHONE = { width: 390, height: 844 };
/** A browser is slow on a busy machine. */
const DEADLINE_MS = deadline(180_000);
/** Where to put pictures of the page, for a person to look at. */
const SHOTS = process.env.CATENA_UI_SHOTS;

interface Scene {
  readonly lab: Lab;
  readonly browser: Browser;
  readonly page: Page;
  /** What the page reported as an error, and addresses beyond the server that it asked for. */
  readonly faults: string[];
}

async function inBrowser(
  prepare: (lab: Lab) => Promise<void>,
  body: (scene: Scene) => Promise<void>,
): Promise<void> {
  await withHost(async lab => {
    await prepare(lab);
    const ui = await startUi(lab);
    const browser = await startChromium(lab);
    try {
      const page = await browser.newPage({ viewport: DESK });
      page.setDefaultTimeout(DEADLINE_MS / 3);
      const faults: string[] = [];
      page.on('console', message => void (message.type() === 'error' && faults.push(message.text())));
      page.on('pageerror', error => void faults.push(error.message));
      page.on('request', request => {
        const url = request.url();
        if (!url.startsWith('data:') && !url.startsWith(`http://127.0.0.1:${ui.port}/`)) faults.push(url);
      });
      await page.goto(ui.url);
      await page.waitForSelector('[data-row]');
      await body({ lab, browser, page, faults });
      // The same address a second time, as if it had been read from the history of the shell.
      const other = await browser.newPage();
      expect((await other.goto(ui.url))?.status()).toBe(403);
    } finally {
      await browser.close();
    }
  });
}

async function violations(page: Page, colorScheme: 'light' | 'dark'): Promise<string[]> {
  await page.emulateMedia({ colorScheme });
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(AXE);
  // The same elements in the dark: only colours are different.
  const only = colorScheme === 'dark' ? "{ runOnly: ['color-contrast'] }" : '{}';
  const { violations: found } = (await page.evaluate(`axe.run(document, ${only})`)) as {
    violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
  };
  return found.map(
    ({ id, nodes }) =>
      `${colorScheme} ${page.url().split('#')[1]} ${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`,
  );
}

async function shoot(page: Page, name: string, colorScheme: 'light' | 'dark' = 'light'): Promise<void> {
  if (SHOTS === undefined) return;
  await page.emulateMedia({ colorScheme });
  await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: !name.startsWith('thousand') });
}

/** Pages scroll down, never to the side. */
async function overflow(page: Page): Promise<number> {
  return page.evaluate(
    'document.documentElement.scrollWidth - document.documentElement.clientWidth',
  ) as Promise<number>;
}

const MARKUP = '<img src=http://example.org/x onerror=alert(1)>';
const NAMES = ['shop/web-0', 'shop/web-1', 'shop/db-0'];
const VIEWS = ['attachments', 'networks', 'pools', 'ports', 'why-not', 'findings', 'log'];

describeRoot(
  'the page of catena ui',
  () => {
    test(
      'shows a node, what breaks on it, and every view without faults, in light and dark, on a phone',
      () => {
        const pods: Container[] = [];
        const prepare = async (lab: Lab): Promise<void> => {
          const chain = writeChain(lab, fullChain(lab));
          for (const [i, name] of NAMES.entries()) {
            const pod = await lab.container();
            pods.push(pod);
            const cap = { portMappings: [{ hostPort: 8080 + i, containerPort: 80, protocol: 'tcp' }] };
            const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=${name.slice(5)}`;
            await chain.add(pod, { cap, args: ['--trace', '--args', args] });
          }
        };
        return inBrowser(prepare, async ({ lab, page, faults }) => {
          // What is not known to be sound yet comes before the others.
          await page.locator('tr.sound').nth(2).waitFor();
          expect(await page.evaluate('document.cookie')).toBe('');
          expect(await page.locator('[data-row]').allTextContents()).toEqual(NAMES.toSorted());
          expect(await page.locator('.picture .cell.sound').count()).toBe(3);
          expect(await page.locator('.picture .box').count()).toBe(1);
          await shoot(page, 'healthy');

          const [first] = pods;
          if (first === undefined) throw new Error('no pod');
          await lab.ip(first, 'link', 'delete', 'eth0');
          await page.waitForSelector('tr.broken');
          expect(await page.locator('tbody tr').first().textContent()).toContain('shop/web-0');
          expect(await page.locator('.picture .cell.broken').count()).toBe(1);
          await page.getByRole('status').filter({ hasText: '1 broken' }).first().waitFor();
          expect(await page.title()).toStartWith('✕ 1 · ');
          await shoot(page, 'broken');
          await shoot(page, 'broken-dark', 'dark');
          // The picture of README.md.
          if (process.env.CATENA_WRITE_DOCS)
            await page.screenshot({
              path: `${ROOT}/src/ui/page.png`,
              clip: { x: 0, y: 0, width: 1200, height: 640 },
            });

          // The keyboard: search, into the list, along it, into the detail, and back.
          await page.keyboard.press('/');
          await page.keyboard.type('shop 808');
          expect(await page.locator('[data-row]').count()).toBe(3);
          await page.keyboard.press('ArrowDown');
          await page.keyboard.press('ArrowDown');
          await page.keyboard.press('End');
          await page.keyboard.press('Home');
          await page.keyboard.press('Enter');
          await page.waitForSelector('.chain li .changes');
          expect(await page.locator('main h2').textContent()).toContain('shop/web-0');
          const chain = await page.locator('.chain > li strong').allTextContents();
          expect(chain).toEqual(['bridge', 'portmap', 'bandwidth', 'tuning']);
          expect(await page.locator('.chain').textContent()).toMatch(/\+ 10\.88\.0\.\d\/16/);
          expect(await page.locator('svg.when').count()).toBe(4);
          await page.locator('.chain summary', { hasText: 'options' }).first().click();
          expect(await page.locator('.chain .options').first().textContent()).toContain('hairpinMode = true');
          expect(await page.locator('.chain .options').nth(1).textContent()).toContain('ranges = [[');
          expect(await page.locator('.notice.broken').textContent()).not.toBe('');
          await page.locator('.mend code').waitFor();
          expect(await page.locator('.mend code').textContent()).toMatch(
            /^catena del podnet .* && catena add /,
          );
          await shoot(page, 'detail');
          await shoot(page, 'detail-dark', 'dark');
          for (const scheme of ['light', 'dark'] as const) expect(await violations(page, scheme)).toEqual([]);
          await page.setViewportSize(PHONE);
          expect(await overflow(page)).toBe(0);
          await shoot(page, 'detail-phone');
          await page.keyboard.press('Escape');
          await page.waitForSelector('[data-row]:focus');
          expect(await page.locator('[data-row]:focus').textContent()).toBe('shop/web-0');
          await page.locator('search input').fill('');

          for (const view of VIEWS) {
            await page.setViewportSize(DESK);
            await page.locator(`nav a[href="#/${view}"]`).click();
            await page.waitForSelector(
              view === 'why-not'
                ? '.question'
                : view === 'findings'
                  ? '.findings li'
                  : view === 'pools'
                    ? '.map .live'
                    : 'tbody tr',
            );
            for (const scheme of ['light', 'dark'] as const)
              expect(await violations(page, scheme)).toEqual([]);
            await shoot(page, view);
            await page.setViewportSize(PHONE);
            expect([view, await overflow(page)]).toEqual([view, 0]);
            await shoot(page, `${view}-phone`);
          }

          // A port's packet is followed, its command copied, and what the runtimes use is shown.
          await page.setViewportSize(DESK);
          await page.locator('nav a[href="#/ports"]').click();
          await page.getByRole('link', { name: 'follow it' }).last().click();
          await page.waitForSelector('.verdict');
          expect(await page.locator('.findings li').count()).toBeGreaterThan(1);
          await page.locator('input[name="from"]').fill('node');
          await page.locator('input[name="to"]').fill('nothing:80');
          // What was typed stays while the page is drawn again.
          await page.waitForResponse(response => response.url().includes('/node'));
          await Bun.sleep(200);
          expect(await page.locator('input[name="to"]').inputValue()).toBe('nothing:80');
          await page.getByRole('button', { name: 'Follow' }).click();
          await page.locator('.notice.broken', { hasText: 'Cannot find container "nothing"' }).waitFor();
          await page.locator('nav a[href="#/findings"]').click();
          const copy = page.getByRole('button', { name: /^Copy: catena / }).first();
          await copy.click();
          await copy.filter({ hasText: 'Copied' }).waitFor();
          await page.locator('nav a[href="#/networks"]').click();
          await page.locator('.badge', { hasText: 'used' }).first().waitFor();
          expect(await page.locator('.facts').textContent()).toContain('containerd attaches containers to');
          expect(faults.filter(text => !text.includes('503'))).toEqual([]);
        });
      },
      DEADLINE_MS,
    );

    test(
      'lists a thousand attachments; names of the node stay text, and nothing is loaded from elsewhere',
      () =>
        inBrowser(
          lab => Promise.resolve(writeRecords(lab, 1_000)),
          async ({ page, faults }) => {
            expect(await page.locator('[data-row]').count()).toBe(1_000);
            expect(await page.locator('.picture .cell').count()).toBe(1_000);
            await shoot(page, 'thousand');
            await shoot(page, 'thousand-dark', 'dark');
            await page.getByRole('status').filter({ hasText: 'none broken, 1000 gone' }).first().waitFor();
            expect(await page.locator('[data-row]').first().textContent()).toBe(`shop/${MARKUP}`);
            expect(await page.locator('#app img').count()).toBe(0);
            await page.locator('search input').fill('pod-777 podnet');
            await page.locator('[data-row]').nth(1).waitFor({ state: 'detached' });
            expect(await page.locator('[data-row]').textContent()).toBe('shop/pod-777');
            await page.locator('search input').fill('');
            await page.locator('[data-row]').first().focus();
            await page.keyboard.press('End');
            await page.locator('[data-row*="id-999"]:focus').waitFor();
            await page.setViewportSize(PHONE);
            expect(await overflow(page)).toBe(0);
            await shoot(page, 'thousand-phone');
            expect(faults).toEqual([]);

            // Behind a tunnel that has ended, requests stay without an answer.
            await page.clock.install();
            await page.reload();
            await page.waitForSelector('[data-row]');
            const asked = page.waitForRequest('**/api/node');
            await page.route('**/api/**', () => {});
            await page.clock.runFor(2_000);
            await asked;
            await page.clock.runFor(60_000);
            await page.getByRole('alert').filter({ hasText: 'The server does not answer' }).waitFor();
            expect(await page.getByRole('status').first().textContent()).toStartWith('not live: ');
          },
        ),
      DEADLINE_MS,
    );
    test(
      'shows every view without a broken word, at every width, however many attachments there are',
      () =>
        inBrowser(
          lab => Promise.resolve(writeRecords(lab, 1)),
          async ({ page, faults }) => {
            let answers: Readonly<Record<string, unknown>> = {};
            await page.route('**/api/**', route => {
              const path = route.request().url().split('/api/')[1] ?? '';
              return route.fulfill({ json: answers[path] ?? answers[path.split('/')[0] ?? ''] ?? {} });
            });
            const ugly: string[] = [];
            for (const number of NUMBERS) {
              for (const state of number === 0 ? (['healthy'] as const) : STATES) {
                answers = answersOf(number, state);
                const views = [...VIEWS, 'why-not/outside/%3A8080', hrefOf(number)].filter(
                  view => number < 1_000 || view === 'attachments' || view === 'log',
                );
                for (const view of views) {
                  await page.goto(page.url().replace(/#.*|$/, `#/${view}`));
                  await page.reload();
                  await page.waitForSelector(
                    `${view === 'attachments' && number > 0 ? '[data-row]' : 'main h2'}`,
                  );
                  // A function as text would be evaluated, which the page's policy forbids.
                  await page.locator('main', { hasNotText: /Reading|Examining|Following/ }).waitFor();
                  for (const width of WIDTHS) {
                    await page.setViewportSize({ width, height: 900 });
                    const name = `${number}-${state}-${view.split('/')[0]}-${width}`;
                    ugly.push(...((await page.evaluate(UGLY)) as string[]).map(text => `${name}: ${text}`));
                    for (const scheme of ['light', 'dark'] as const)
                      await shoot(page, `${number < 1_000 ? '' : 'thousand-'}${name}-${scheme}`, scheme);
                  }
                }
              }
            }
            expect(ugly).toEqual([]);
            expect(faults).toEqual([]);
          },
        ),
      DEADLINE_MS * 3,
    );
  },
  requiresChromium(),
);

const WIDTHS = IS_SAMPLE ? [375, 800, 1280] : [375, 640, 800, 1024, 1280, 1920];
const NUMBERS = IS_SAMPLE ? [40] : [0, 3, 40, 1_000];
const STATES = IS_SAMPLE ? (['broken'] as const) : (['healthy', 'broken'] as const);

/**
 * What a person would call ugly, found by geometry: a page that scrolls to the side; a word of up to 20 letters in two lines; text
 * outside of its cell, section or box.
 */
const UGLY = `(() => {
  const found = [];
  let seen = 0;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push('the page is ' + root.scrollWidth + ' wide');
  const range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ++seen < 3_000) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (parent.closest('.unseen, .skip, thead, svg, noscript, option, title') || !parent.checkVisibility()) continue;
    const frame = parent.closest('td, th, .badge, section, header, main, footer, body').getBoundingClientRect();
    for (const { 0: word, index } of node.data.matchAll(/[^\\s/:]+[/:]?/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const rects = [...range.getClientRects()].filter(({ width }) => width > 0);
      const text = word + ' in "' + node.data.slice(0, 60) + '"';
      if (rects.length > 1 && word.length <= 20 && !/\\w-\\w|^--/.test(word)) found.push('broken: ' + text);
      if (rects.some(({ left, right }) => left < frame.left - 1 || right > frame.right + 1)) found.push('outside: ' + text);
    }
    if (found.length > 20) break;
  }
  for (const text of document.querySelectorAll('.picture text')) {
    const box = [...text.parentElement.children].find(one => one.matches('rect'))?.getBoundingClientRect();
    const own = text.getBoundingClientRect();
    if (box && own.width > 0 && (own.right > box.right || own.left < box.left || own.bottom > box.bottom + 2))
      found.push('out of its box: ' + text.textContent);
  }
  return found.slice(0, 10);
})()`;

/** Cached results of attachments whose namespaces are gone, as after a boot. */
function writeRecords(lab: Lab, count: number): void {
  const list = fullChain(lab);
  fs.writeFileSync(`${lab.tmp}/podnet.conflist`, JSON.stringify(list));
  const dir = `${directories(lab.tmp).CATENA_CNI_CACHE_DIR}/results`;
  fs.mkdirSync(dir, { recursive: true });
  for (let i = 0; i < count; i++) {
    const containerId = `id-${String(i).padStart(3, '0')}`;
    const address = `10.88.${Math.floor(i / 250)}.${(i % 250) + 2}/16`;
    const record = {
      ...{
        kind: 'cniCacheV1',
        containerId,
        networkName: 'podnet',
        ifName: 'eth0',
        netns: `/run/netns/${containerId}`,
      },
      config: btoa(JSON.stringify(list)),
      cniArgs: [
        ['K8S_POD_NAMESPACE', 'shop'],
        ['K8S_POD_NAME', i === 0 ? MARKUP : `pod-${i}`],
      ],
      capabilityArgs: { portMappings: [{ hostPort: 20_000 + i, containerPort: 80, protocol: 'tcp' }] },
      result: {
        cniVersion: '1.1.0',
        ips: [{ address, interface: 0 }],
        interfaces: [{ name: 'eth0', sandbox: 'x' }],
      },
    };
    fs.writeFileSync(`${dir}/podnet-${containerId}-eth0`, JSON.stringify(record));
  }
}
