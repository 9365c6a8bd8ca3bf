// What a link leads to is shown beside it.  The cards of a page are a script (book/_ext/book_cards.py), loaded
// when a link to that page is touched.
const bookCards = {};
(() => {
  const article = document.querySelector(".bd-article");
  if (!article || !("popover" in HTMLElement.prototype) || matchMedia("(hover: none)").matches) return;
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const card = document.createElement("div");
  card.className = "book-card";
  card.popover = "manual";
  card.ariaHidden = "true"; // the link leads to the same
  article.append(card);
  let waiting, shown;

  const load = (page) =>
    (load[page] ??= new Promise((done) => {
      const script = document.createElement("script");
      script.src = new URL(`_static/cards/${page}.js`, root);
      script.onload = script.onerror = () => done(bookCards[page] ?? {});
      document.head.append(script);
    }));

  const show = async (link) => {
    const { pathname, hash } = new URL(link.href);
    const cards = await load(pathname.slice(root.pathname.length).replace(/\.html$/, ""));
    const content = cards[decodeURIComponent(hash.slice(1))];
    if (!content || shown !== link) return;
    card.innerHTML = content;
    card.showPopover();
    put();
  };
  const put = () => {
    const place = shown?.getClientRects()[0];
    if (!place || place.bottom < 0 || place.top > innerHeight) return hide();
    const { width, height } = card.getBoundingClientRect();
    const below = innerHeight - place.bottom - 8;
    const top = height <= below || below > place.top ? place.bottom + 6 : Math.max(4, place.top - height - 6);
    card.style.left = `${Math.max(4, Math.min(place.left, document.documentElement.clientWidth - width - 4))}px`;
    card.style.top = `${top}px`;
  };
  const plan = (action, delay) => {
    clearTimeout(waiting);
    waiting = setTimeout(action, delay);
  };
  const hide = () => {
    clearTimeout(waiting);
    shown = undefined;
    if (card.matches(":popover-open")) card.hidePopover();
  };
  const begin = (link, delay) => {
    if (link === shown) return plan(() => {}, 0);
    hide();
    plan(() => show((shown = link)), delay);
  };

  const linkAt = (event) => event.target.closest?.('a[href*="#"]:not(.headerlink)');
  article.addEventListener("mouseover", (event) => {
    const link = linkAt(event);
    if (link) begin(link, 200);
    else if (card.contains(event.target)) clearTimeout(waiting);
  });
  article.addEventListener("mouseout", (event) => {
    if (linkAt(event) || card.contains(event.target)) plan(hide, 250);
  });
  article.addEventListener("focusin", (event) => {
    const link = linkAt(event);
    if (link?.matches(":focus-visible")) begin(link, 0);
  });
  article.addEventListener("focusout", hide);
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", () => card.matches(":popover-open") && put(), { passive: true });
})();
