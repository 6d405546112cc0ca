"""Check in a browser that a page can be read."""

from __future__ import annotations

from typing import Final

from tests.spark.chromium import Chromium

CHECK: Final = """
(() => {
  const room = document.documentElement.clientWidth;
  const texts = [], covered = [], outside = [], faint = [];
  const light = c => {
    const [r, g, b] = c.map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const found = parts(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const home = node.parentElement, words = node.data.trim();
    if (!words || home.closest('caption, .skip, .scroll, title, style')) continue;
    if (!home.checkVisibility()) continue;
    const inside = home.closest('text');
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = inside ? [inside.getBoundingClientRect()] : [...range.getClientRects()];
    for (const box of boxes)
      if (box.width > 0) texts.push({words: words.slice(0, 40), node, box});
    const style = getComputedStyle(home);
    const fore = light(parts(inside ? style.fill : style.color).slice(0, 3));
    const back = light(behind(home));
    const contrast = (Math.max(fore, back) + .05) / (Math.min(fore, back) + .05);
    if (contrast < 4.5) faint.push(`${words.slice(0, 40)} ${contrast.toFixed(2)}`);
  }
  texts.sort((a, b) => a.box.top - b.box.top);
  texts.forEach((one, at) => {
    const frame = one.node.parentElement.closest('.card, .tile');
    const {left, right} = frame ? frame.getBoundingClientRect() : {left: 0, right: room};
    if (one.box.left < left - .5 || one.box.right > right + .5 || right > room + .5)
      outside.push(one.words);
    for (let next = at + 1; next < texts.length && texts[next].box.top < one.box.bottom; next++) {
      const two = texts[next];
      if (two.node === one.node) continue;
      const wide = Math.min(one.box.right, two.box.right) - Math.max(one.box.left, two.box.left);
      const high = Math.min(one.box.bottom, two.box.bottom) - two.box.top;
      if (wide > 1 && high > 3) covered.push(`${one.words} / ${two.words}`);
    }
  });
  return {
    width: room, scroll: document.scrollingElement.scrollWidth, texts: texts.length,
    covered, outside, faint: [...new Set(faint)],
    back: getComputedStyle(document.body).backgroundColor,
  };
})()
"""


def check_layout(browser: Chromium, width: int) -> None:
    """No text over another, none out of sight, nothing to scroll sideways, nothing faint."""
    found = browser.run(CHECK)
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["covered"] == []
    assert found["outside"] == []
    assert found["faint"] == []
