import { expect, test } from 'bun:test';
import { createSession } from '../../../src/ui/session.ts';

test('the token is exchanged once, for a cookie of this session', () => {
  const [session, other] = [createSession(), createSession()];
  expect(session.redeem('')).toBeUndefined();
  expect(session.redeem(other.token)).toBeUndefined();
  const cookie = session.redeem(session.token) ?? '';
  const [pair = '', ...attributes] = cookie.split('; ');
  expect(attributes).toEqual([`Path=${session.folder}`, 'HttpOnly', 'SameSite=Strict']);
  expect(session.redeem(session.token)).toBeUndefined();
  expect(session.admits(`a=b; ${pair}`)).toBe(true);
  expect(other.admits(pair)).toBe(false);
});

test.each([null, '', 'catena-ui', 'catena-ui=', 'catena-ui=x', 'other=y'])(
  'the cookie %p admits nothing',
  cookies => {
    const session = createSession();
    expect(session.admits(cookies)).toBe(false);
    session.redeem(session.token);
    expect(session.admits(cookies)).toBe(false);
  },
);

test('secrets are long, and never the same', () => {
  const [a, b] = [createSession(), createSession()];
  expect(a.token).toMatch(/^[\w-]{43}$/);
  expect(a.folder).toMatch(/^\/[\w-]{43}\/$/);
  expect(new Set([a.token, b.token, a.folder.slice(1, -1), b.folder.slice(1, -1)]).size).toBe(4);
});
