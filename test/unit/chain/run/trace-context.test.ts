import { describe, expect, test } from 'bun:test';
import {
  findTraceParent,
  parseTraceParent,
  startSpan,
  traceEnv,
} from '../../../../src/chain/run/trace-context.ts';

// The example of the recommendation, section 3.2.3.
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const PARENT = `00-${TRACE}-${SPAN}-01`;

describe('parseTraceParent()', () => {
  test('reads the example of the recommendation', () => {
    expect(parseTraceParent(PARENT)).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
  });

  test.each([
    ['undefined flags as zero', `00-${TRACE}-${SPAN}-ff`, 3],
    ['a higher version', `cc-${TRACE}-${SPAN}-00`, 0],
    ['a higher version that says more', `cc-${TRACE}-${SPAN}-01-what-the-future-brings`, 1],
  ])('accepts %s', (_, text, flags) => {
    expect(parseTraceParent(text)).toEqual({ traceId: TRACE, spanId: SPAN, flags });
  });

  test.each([
    ['nothing', ''],
    ['the forbidden version', `ff-${TRACE}-${SPAN}-01`],
    ['no trace', `00-${'0'.repeat(32)}-${SPAN}-01`],
    ['no span', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['upper case', PARENT.toUpperCase()],
    ['a short trace id', `00-${TRACE.slice(1)}-${SPAN}-01`],
    ['a long span id', `00-${TRACE}-${SPAN}0-01`],
    ['flags of one digit', `00-${TRACE}-${SPAN}-1`],
    ['more than version 00 may say', `${PARENT}-more`],
    ['more without a dash', `cc-${TRACE}-${SPAN}-01.more`],
    ['a line end', `${PARENT}\n`],
    ['white space', ` ${PARENT}`],
    ['other letters', `00-${TRACE.replace('f', 'g')}-${SPAN}-01`],
  ])('ignores %s', (_, text) => {
    expect(parseTraceParent(text)).toBeUndefined();
  });
});

test('startSpan() begins a new span below the parent', () => {
  const parent = { traceId: TRACE, spanId: SPAN, flags: 1 };
  const spans = Array.from({ length: 100 }, () => startSpan(parent));
  expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(100);
  for (const span of spans) {
    expect(span).toMatchObject({ traceId: TRACE, parentSpanId: SPAN, sampled: true });
    expect(span.spanId).toMatch(/^[\da-f]{16}$/);
  }
  expect(startSpan({ ...parent, flags: 2 }).sampled).toBe(false);
});

describe('traceEnv()', () => {
  test('names the span, in the version and with the flags that we support', () => {
    const parent = findTraceParent({ TRACEPARENT: `cc-${TRACE}-${SPAN}-ff` });
    const span = parent && startSpan(parent);
    expect(traceEnv(parent, span)).toEqual({ TRACEPARENT: `00-${TRACE}-${span?.spanId}-03` });
  });

  test('removes an invalid parent, and the state that belongs to it', () => {
    const parent = findTraceParent({ TRACEPARENT: 'nonsense', TRACESTATE: 'a=b' });
    expect(traceEnv(parent, undefined)).toEqual({ TRACEPARENT: undefined, TRACESTATE: undefined });
    expect(findTraceParent({})).toBeUndefined();
  });
});
