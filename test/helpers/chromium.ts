// Where do tests find a browser, without installing one on the machine?
import fs from 'node:fs';
import path from 'node:path';
import type { Browser } from 'playwright-core';
import type { Lab } from './netns.ts';
import type { Need } from './skip.ts';
import { libraryDirs, unpackedAt, unpackPackages } from './unpack.ts';

const UNPACKED = unpackedAt('catena-chromium');
const PROGRAM = path.join(UNPACKED, 'usr/lib/chromium/chromium');

/** There is one font. */
const SANS =
  '<match><edit name="family" mode="prepend" binding="strong"><string>DejaVu Sans</string></edit></match>';

/** Whether a test file starts a browser. */
export function needsChromium(file: string): boolean {
  return file === 'test/e2e/ui-page.test.ts';
}

/**
 * Downloads and unpacks Debian's Chromium and a font, 100 MB, unless an earlier run did.
 * @returns a line for the reader if it failed
 */
export function unpackChromium(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, ['chromium', 'fonts-dejavu-core']);
}

/** Needs the unpacked browser. */
export function requiresChromium(): Need {
  return fs.existsSync(PROGRAM) ? undefined : 'needs Debian\'s "chromium", which could not be unpacked';
}

/** Starts the browser inside the fake host; the caller closes it. Its profile is a directory of playwright's, which it removes. */
export async function startChromium(lab: Lab): Promise<Browser> {
  const libraries = libraryDirs(UNPACKED).flatMap(dir => [dir, `${dir}/pulseaudio`]);
  // Not beside the lists of networks.
  const home = `${lab.tmp}/browser`;
  fs.mkdirSync(home);
  const fonts = `${home}/fonts.conf`;
  // What the machine has already is not unpacked.
  const dirs = [UNPACKED, ''].map(root => `<dir>${root}/usr/share/fonts</dir>`).join('');
  fs.writeFileSync(
    fonts,
    `<?xml version="1.0"?><fontconfig>${dirs}<cachedir>${home}/fonts</cachedir>${SANS}</fontconfig>`,
  );
  const start = `${home}/chromium`;
  fs.writeFileSync(start, `#!/bin/sh\nexec nsenter --net=${lab.host.path} -- ${PROGRAM} "$@"\n`, {
    mode: 0o755,
  });
  // The test program, which only unpacks, does without it.
  const { chromium } = await import('playwright-core');
  return chromium.launch({
    executablePath: start,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
    env: {
      ...(process.env as Record<string, string>),
      LD_LIBRARY_PATH: libraries.join(':'),
      FONTCONFIG_FILE: fonts,
      HOME: home,
      XDG_CONFIG_HOME: home,
      XDG_CACHE_HOME: home,
    },
    timeout: 60_000,
  });
}
