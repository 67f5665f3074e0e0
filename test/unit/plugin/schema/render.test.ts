import { expect, test } from 'bun:test';
import * as z from 'zod/mini';
import { readDocComments, renderSchema } from '../../../../src/plugin/schema/render.ts';

test('readDocComments() finds the words of every key, by its path', () => {
  const source = `
// What may be configured?
import * as z from 'zod/mini';
/** Shared by several. */
const attributes = {
  /** Bytes; it's \`0\` by default. */
  mtu: z.optional(z.int()),
};
/** The configuration. */
export const Conf = z.extend(PluginConfig, {
  ...attributes,
  /**
   * Two
   * lines.
   */
  name: z._default(z.string().check(z.regex(/^[a-z]{1,3}$/)), 'a, b'),
  plain: z.string(),
  /** Outer. */
  outer: z.optional(
    z.looseObject({
      first: z.array(z.string()),
      /** Inner. */
      inner: z.string(),
    }),
  ),
  /** Last. */
  last: z.string(),
});
/** Not a key. */
export interface Other {
  /** Of a type. */
  readonly value: number;
}
`;
  expect(Object.fromEntries(readDocComments(source))).toEqual({
    mtu: "Bytes; it's `0` by default.",
    name: 'Two lines.',
    outer: 'Outer.',
    'outer.inner': 'Inner.',
    last: 'Last.',
  });
});

test('renderSchema() lets an option be anything whose check JSON Schema has no words for', () => {
  const conf = z.looseObject({ own: z.custom<string>(value => value === 'a'), text: z.string() });
  expect(renderSchema(conf, []).properties).toEqual({ own: {}, text: { type: 'string' } });
});
