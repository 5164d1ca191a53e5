"""Function words: articles, pronouns, prepositions, auxiliaries, particles.

Closed classes, written out, in small letters. English forms with 's, 're, n't and the
like count by what stands before; those whose rest is no word are here. "none" is not,
since in documentation None is a name.
"""

ENGLISH_CLASSES = {
    "determiners": """a an the this that these those each every either neither some any
        no all both half such what which whose another other""",
    "pronouns": """i me my mine myself you your yours yourself yourselves he him his
        himself she her hers herself it its itself we us our ours ourselves they them
        their theirs themselves one ones who whom someone somebody something anyone
        anybody anything everyone everybody everything nobody nothing""",
    "prepositions": """about above across after against along among around as at before
        behind below beneath beside besides between beyond by despite down during except
        for from in inside into like near of off on onto out outside over per since
        through throughout till to toward towards under until unlike up upon via with
        within without""",
    "conjunctions": """and but or nor so yet if unless whether because although though
        while whereas when whenever where wherever than once""",
    "auxiliaries": """am is are was were be been being have has had having do does did
        doing will would shall should can could may might must ought cannot can't won't
        shan't isn ain't ain't let's""",
    "particles": """not how why there here then too also only just very even else more
        most less least much many few""",
}
GERMAN_CLASSES = {
    "determiners": """der die das den dem des ein eine einen einem einer eines kein
        keine keinen keinem keiner keines dieser diese dieses diesen diesem jener jene
        jenes jenen jenem jeder jede jedes jeden jedem alle allen aller alles manche
        mancher manches welcher welche welches welchen welchem solche solcher solches
        beide beiden einige einigen viele vielen wenige""",
    "pronouns": """ich mich mir du dich dir er ihn ihm sie es wir uns ihr euch ihnen
        sich man wer wen wem wessen was jemand jemanden jemandem niemand niemanden
        niemandem etwas nichts mein meine meinen meinem meiner meines dein deine deinen
        deinem deiner deines sein seine seinen seinem seiner seines ihre ihren ihrem
        ihrer ihres unser unsere unseren unserem unserer unseres euer eure euren eurem
        eurer selbst""",
    "prepositions": """ab an am ans auf aufs aus außer bei beim bis durch durchs für
        gegen gegenüber hinter in im ins mit nach neben ohne seit statt trotz über um
        ums unter von vom vor während wegen zu zum zur zwischen""",
    "conjunctions": """und oder aber denn sondern dass daß ob wenn als weil da damit
        obwohl bevor nachdem sobald solange sowie sowohl entweder weder noch wie""",
    "auxiliaries": """bin bist ist sind seid war warst waren wart sei wäre wären gewesen
        habe hast hat haben habt hatte hattest hatten hattet hätte hätten gehabt werde
        wirst wird werden werdet wurde wurden würde würden worden geworden kann kannst
        können könnt konnte konnten könnte könnten muss muß musst müssen müsst musste
        mussten müsste soll sollst sollen sollt sollte sollten will willst wollen wollt
        wollte wollten darf darfst dürfen durfte durften dürfte mag magst mögen möchte
        möchten möchtest""",
    "particles": """nicht auch nur schon doch ja nein mal so sehr zu dann dort hier da
        wo wann warum weshalb wieso woher wohin mehr immer nie wieder""",
}


def words(classes: dict[str, str]) -> frozenset[str]:
    return frozenset(word for several in classes.values() for word in several.split())


ENGLISH, GERMAN = words(ENGLISH_CLASSES), words(GERMAN_CLASSES)
