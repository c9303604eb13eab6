"""Stop words by language: a language's name in, a frozen set of folded words out. No I/O.

Only words that carry no question by themselves; a language without a list drops nothing, and BM25 weighs its common
words down anyway. The lists are short on purpose: a word that is missing costs a little time, one too many costs an
answer. Words are folded as `text_terms` folds them (case and Latin accents), so both sides compare equal.
"""

from __future__ import annotations

_WORDS = {
    "english": """
        a about am an and any are as at be been being but by can could did do does doing for from had has have
        having he her hers him his how i if in into is it its itself just me my no nor not of on or our ours she
        should so some such than that the their theirs them then there these they this those to too very was we
        were what when where which while who whom why will with would you your yours don't doesn't isn't it's
        what's i'm i've
    """,
    "german": """
        aber als am an auch auf aus bei bin bis bist da das dass dem den der des die dies diese dieser dieses
        doch du durch ein eine einem einen einer eines er es fur hat haben ich ihr im in ist ja kann mit nach
        nicht noch nur ob oder sein sich sie sind so uber um und uns unter vom von vor war was wenn wer wie wir
        wird wo zu zum zur
    """,
    "french": """
        au aux avec ce ces cette dans de des du elle en est et eux il ils je la le les leur lui ma mais me mes
        moi mon ne nos notre nous on ou par pas pour qu que quel quelle qui sa se ses son sont sur ta te tes toi
        ton tu un une vos votre vous y comment
    """,
    "spanish": """
        a al algo como con cual cuando de del donde e el ella ellos en entre era es esa ese eso esta este esto
        fue ha hay la las le les lo los mas me mi muy no nos o para pero por porque que quien se ser si sin
        sobre son su sus tambien te tu un una uno unos y ya yo
    """,
    "italian": """
        a ai al alla alle anche che chi ci come con cosa cui da dal dalla dei del della delle di dove e ed era
        gli ha ho i il in io la le lei lo loro lui ma mi ne nei nel nella no noi non o per perche piu quale
        quando quello questo se si sono su sul sulla tra tu un una uno vi voi
    """,
    "portuguese": """
        a ao aos as com como da das de do dos e ela ele eles em entre era essa esse esta este eu foi ha isso
        isto ja mais mas me meu minha muito na nao nas no nos o os ou para pela pelo por qual quando que quem se
        sem ser seu sua sao so tambem te um uma voce
    """,
    "dutch": """
        aan al als bij dan dat de deze die dit door een en er haar had heb het hij hoe ik in is ja je kan maar
        me met mijn naar niet nog of om ons ook op over te tot u uit van voor was wat we wel wie wij ze zei zich
        zij zijn zo zou
    """,
    "swedish": """
        alla att av da dar de dem den det detta du efter ej eller en er ett for fran ha han har hon hur i icke
        inte jag kan man med men min mot nar ni nu och om oss pa sa sig sin som till upp ut vad var vi vid
        vilken ar at
    """,
    "norwegian": """
        alle at av da de deg dem den der det dette du eller en er et for fra ha han har hun hva hvem hvor
        hvordan i ikke jeg kan man med men meg min na nar og om oss pa sa seg sin som til ut var vi ved vil
    """,
    "danish": """
        af alle at da de dem den der det dette du efter eller en er et for fra ha han har hun hvad hvem hvor
        hvordan i ikke jeg kan man med men mig min nar nu og om op os pa sa sig sin som til ud var vi ved vil
    """,
    "finnish": """
        ei en et etta han he ja jos joka jotka kuin kun kuka me mika mina missa mita mutta myos ne niin nyt ole
        oli on ovat se siita sina tai tama te vai vain
    """,
    "russian": """
        а без бы был была были было быть в вам вас во вот все вы где да для до его ее если есть же за и из или
        им их к как ко когда кто ли мне мы на над не нет ни но о об он она они оно от по под при с со так там то
        тот ты у уже чем что чтобы эта эти это я
    """,  # noqa: RUF001 - Cyrillic on purpose
}


def read_stop_words(language: str) -> frozenset[str]:
    """The folded stop words of a language, empty where we have no list."""
    return frozenset(_WORDS.get(language, "").split())
